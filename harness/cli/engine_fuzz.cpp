// `lockstep fuzz --engine`: random scenarios on one world of an engine, one after the other.
#include <cstdio>
#include <memory>
#include <optional>
#include <set>

#include "harness/base/progress.h"
#include "harness/campaign/corpus.h"
#include "harness/campaign/log.h"
#include "harness/cli/engine_commands.h"
#include "harness/cli/engine_session.h"
#include "harness/cli/write_reports.h"
#include "harness/expect/vacuity.h"
#include "harness/foreign/case_order.h"
#include "harness/foreign/coverage.h"
#include "harness/generate/case.h"
#include "harness/generate/crossed.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/shrink/rules.h"
#include "scenarios/documents/documents.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

namespace json = boost::json;
using foreign::EngineResult;

constexpr std::int64_t kUsualCount = 1000;
constexpr std::int64_t kFirstCrossed = 1'000'000'000;  // Numbers of cases from here on.
// A table of `honours` that is right refuses few of the scenarios that are projected by it.
constexpr std::int64_t kLeastForRefusals = 100;
constexpr double kMostRefused = 0.05;

std::string relation_class(const EngineResult& result) {
  const std::string id = result.relation.substr(0, result.relation.find(':'));
  return (id.empty() ? "" : id + " / ") + class_of(result.result);
}

class EngineCampaign {
 public:
  EngineCampaign(const Options& options, std::uint64_t seed, std::shared_ptr<const Likeness> like)
      : options_(options),
        seed_(seed),
        like_(std::move(like)),
        session_(options),
        coverage_(session_.hello().honours),
        progress_(options.has("quiet")) {
    count_ = options.number("count");
    if (count_ == 0 && !options.has("budget")) count_ = kUsualCount;
    if (options.has("resume") && !options.has("log")) throw RequestError("--resume needs --log");
    if (options.has("log")) open_log();
    if (options.number("stop-after") == 1) session_.stop_at_first();
    if (options.has("corpus")) corpus_ = std::make_unique<Corpus>(options.text("corpus"));
  }

  ExitStatus run() {
    InterruptGuard guard;
    try {
      replay_corpus();
      draw();
    } catch (const Interrupted&) {
      session_.report().interrupted = true;
    }
    session_.finish();
    guard.take_over();
    progress_.clear();
    return reported();
  }

 private:
  void open_log() {
    log_ = std::make_unique<CampaignLog>(options_.text("log"), options_.has("resume"));
    json::object campaign{{"seed", std::to_string(seed_)},
                          {"profile", options_.text("profile")},
                          {"engine", options_.text("engine")},
                          {"relation", options_.text("relation")}};
    if (like_) campaign["like"] = like_->identity();
    log_->begin({{"campaign", campaign}});
    for (std::size_t i = 0; i < log_->done().size(); ++i) {
      try {
        const json::object& line = log_->done()[i].as_object();
        done_.insert(line.at("index").to_number<std::int64_t>());
        if (line.contains("result")) remember(line.at("result").as_object());
      } catch (const std::exception&) {
        log_->refuse(i + 2);
      }
    }
  }

  // A case of the log, as if it had been judged now.
  void remember(const json::object& line) {
    EngineResult result = foreign::result_from_json(line);
    if (!result.result.token.empty()) {
      result.scenario = read_token(result.result.token);
      session_.is_repeated(result.scenario);
      add_coverage(result);
    }
    session_.report().results.push_back(std::move(result));
    note(session_.report().results.back());
    ++resumed_;
  }

  void replay_corpus() {
    if (!corpus_) return;
    for (const CorpusCase& one : corpus_->read(corpus_->files(), unreadable_)) {
      if (!one.planned.decided) judge(one.planned.scenario, -1);
    }
  }

  void draw() {
    const std::int64_t only = options_.number("case");
    const std::int64_t end = only >= 0 ? only + 1 : count_ > 0 ? count_ : INT64_MAX;
    std::int64_t place = std::max<std::int64_t>(only, 0);
    foreign::CaseOrder order(
        session_.hello().honours, coverage_, [&]() -> std::optional<foreign::CaseOrder::Waiting> {
          while (place < end) {
            const std::int64_t index = only >= 0 ? only : number_at(place);
            ++place;
            if (!done_.contains(index))
              return foreign::CaseOrder::Waiting{.index = index, .given = case_at(index)};
          }
          return std::nullopt;
        });
    while (!is_over()) {
      const std::optional<foreign::CaseOrder::Waiting> one = order.next();
      if (!one) return;
      if (only < 0 && session_.is_repeated(one->given)) {
        ++repeated_;
        if (log_) log_->append({{"index", one->index}, {"repeated", true}}, false);
        order.judged(*one);
        continue;
      }
      if (is_refused(judge(one->given, one->index))) {
        order.refused(*one);
      } else {
        order.judged(*one);
      }
    }
  }

  // Every other case is a crossed one, but where each is to be like a scenario.
  std::int64_t number_at(std::int64_t place) const {
    if (like_) return place;
    return place % 2 == 0 ? place / 2 : kFirstCrossed + place / 2;
  }

  Scenario case_at(std::int64_t index) {
    const std::string profile = options_.text("profile");
    if (index < kFirstCrossed || like_) {
      // A case that must be refused asks nothing of an engine: the scenario before it was spoiled
      // does.
      return make_case(seed_, index, profile, {}, like_.get()).scenario;
    }
    if (!crossed_) crossed_.emplace(seed_, profile);
    Scenario crossed = settled(crossed_->at(index - kFirstCrossed));
    const std::optional<Scenario> projected =
        foreign::project(crossed, session_.hello().honours).scenario;
    if (!projected || asked_in_vain(*projected, *open_data(*projected)).empty()) return crossed;
    // Its parts do not fit each other, so it is left as it was drawn.
    return make_case(seed_, index - kFirstCrossed, profile).scenario;
  }

  bool is_over() {
    if (Interrupts::came()) throw Interrupted("interrupted by " + Interrupts::name());
    const std::int64_t most = options_.number("stop-after");
    if (most > 0 && failures_ >= most) {
      why_early_ = "--stop-after";
    } else if (options_.has("budget") && watch_.seconds() >= options_.seconds("budget")) {
      // Without a count, the budget is the end that was asked for.
      if (count_ > 0) why_early_ = "the budget ended";
      return true;
    }
    return !why_early_.empty();
  }

  static bool is_refused(const EngineResult& result) {
    return result.result.reason.starts_with("refused: ");
  }

  void add_coverage(const EngineResult& result) {
    if (is_refused(result)) coverage_.add_refused(coverage_.features_of(result.scenario));
    if (result.result.verdict != Verdict::skipped) coverage_.add(result.scenario);
  }

  const EngineResult& judge(const Scenario& scenario, std::int64_t index) {
    const EngineResult& result = session_.judge(scenario);
    add_coverage(result);
    const bool failed = fails(result.result);
    const std::string kept = note(result);
    if (log_ && index >= 0) {
      json::object line{{"index", index}, {"result", foreign::to_json(result)}};
      if (!kept.empty()) line["file"] = kept;
      log_->append(line, failed);
    }
    char text[160];
    std::snprintf(text, sizeof text, "fuzz: case %lld, %lld failed, %.1f s",
                  static_cast<long long>(index), static_cast<long long>(failures_),
                  watch_.seconds());
    progress_.show(text);
    return result;
  }

  // Counts it; the first failure of a class is printed and kept. Returns the file in the corpus.
  std::string note(const EngineResult& result) {
    refused_ += is_refused(result);
    if (!fails(result.result)) return "";
    ++failures_;
    const std::string failure_class = relation_class(result);
    if (!classes_.insert(failure_class).second) return "";
    first_.push_back(session_.report().results.size() - 1);
    if (!corpus_ || result.result.token.empty()) return "";
    Scenario scenario = read_token(result.result.token);
    const std::string file = Corpus::file_of(failure_class);
    const std::string why = failure_block(result.result);
    std::string comment = "# ";
    for (const char c : why.substr(0, why.size() - 1))
      comment += c == '\n' ? std::string("\n# ") : std::string(1, c);
    return corpus_->keep(file, comment + "\n" + to_yaml(scenario)) ? file : "";
  }

  ExitStatus reported() {
    const foreign::EngineReport& report = session_.report();
    for (const std::size_t i : first_) {
      std::fputs(failure_block(report.results[i].result).c_str(), stdout);
      std::fputs((case_text(report.results[i]) + "\n").c_str(), stdout);
    }
    if (!options_.has("quiet")) {
      std::printf("engine %s\n%s%s", report.hello.engine_text().c_str(),
                  foreign::relations_text(report.results).c_str(), coverage_.text().c_str());
    }
    const std::vector<CaseResult> cases = report.cases();
    const auto count = [&](Verdict verdict) {
      return static_cast<long long>(count_of(cases, verdict));
    };
    std::printf(
        "seed %llu: %zu cases, %lld held, %lld violated, %lld broken, %lld gave up, %lld skipped, "
        "%lld of them refused; %lld more project to a case that was judged; %zu classes of "
        "failures; %lld run in %.1f s\n",
        static_cast<unsigned long long>(seed_), cases.size(), count(Verdict::holds),
        count(Verdict::violated), count(Verdict::broken), count(Verdict::gave_up),
        count(Verdict::skipped), static_cast<long long>(refused_),
        static_cast<long long>(repeated_), classes_.size(),
        static_cast<long long>(cases.size()) - static_cast<long long>(resumed_), watch_.seconds());
    if (!why_early_.empty()) std::printf("not all cases were run: %s\n", why_early_.c_str());
    const auto all = static_cast<double>(cases.size());
    if (std::ssize(cases) >= kLeastForRefusals &&
        static_cast<double>(refused_) > kMostRefused * all)
      std::puts(
          "the engine's table `honours` is wrong: it refuses more than 5 % of what it says "
          "that it honours");
    for (const std::string& line : report.expected.unmet())
      std::fprintf(stderr, "lockstep: %s\n", line.c_str());
    std::fputs(unreadable_text(unreadable_).c_str(), stdout);
    session_.write_reports(json_parts());
    return status();
  }

  // Failures alone, one of a class; the log has every case.
  json::object json_parts() const {
    json::array results;
    for (const std::size_t i : first_)
      results.push_back(foreign::to_json(session_.report().results[i]));
    json::object parts{{"results", std::move(results)},
                       {"coverage", coverage_.to_json()},
                       {"campaign",
                        {{"seed", std::to_string(seed_)},
                         {"profile", options_.text("profile")},
                         {"engine", options_.text("engine")},
                         {"repeated", repeated_},
                         {"resumed", resumed_},
                         {"refused", refused_},
                         {"ended_early", !why_early_.empty()}}}};
    if (!unreadable_.empty()) parts["unreadable"] = to_json(unreadable_);
    return parts;
  }

  ExitStatus status() {
    const foreign::EngineReport& report = session_.report();
    const ExitStatus found = status_of(report);
    if (report.interrupted) {
      say_interrupted();
      return interrupted_status(found);
    }
    const std::vector<CaseResult> cases = report.cases();
    if (count_of(cases, Verdict::skipped) == std::ssize(cases))
      throw WorldError("every scenario was skipped: nothing was verified");
    if (found == ExitStatus::held && !unreadable_.empty()) return ExitStatus::bad_request;
    if (found == ExitStatus::held && why_early_ == "the budget ended") return ExitStatus::gave_up;
    return found;
  }

  const Options& options_;
  const std::uint64_t seed_;
  const std::shared_ptr<const Likeness> like_;
  const Stopwatch watch_;
  EngineSession session_;
  foreign::Coverage coverage_;
  Progress progress_;
  std::unique_ptr<CampaignLog> log_;
  std::unique_ptr<Corpus> corpus_;
  std::vector<UnreadableFile> unreadable_;  // Files of the corpus.
  std::optional<CrossedCases> crossed_;
  std::set<std::int64_t> done_;     // Indices of the log.
  std::set<std::string> classes_;   // Failures by class.
  std::vector<std::size_t> first_;  // The first of each, in the report's results.
  std::int64_t count_ = 0, failures_ = 0, repeated_ = 0, refused_ = 0, resumed_ = 0;
  std::string why_early_;
};

}  // namespace

ExitStatus fuzz_on_engine(const Options& options, std::uint64_t seed,
                          std::shared_ptr<const Likeness> like) {
  if (options.has("shard"))
    throw RequestError("--shard is of lockstep's own engine: give each fuzz --engine its own seed");
  std::fprintf(stderr, "lockstep fuzz: seed %llu, engine %s\n",
               static_cast<unsigned long long>(seed), options.text("engine").c_str());
  return EngineCampaign(options, seed, std::move(like)).run();
}

}  // namespace lockstep
