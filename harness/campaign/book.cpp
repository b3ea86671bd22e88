#include "harness/campaign/book.h"

#include <cstdio>

#include "harness/base/version.h"
#include "harness/report/report.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

namespace json = boost::json;

// The options that decide the cases of a campaign.
json::object header_of(const CampaignOptions& options) {
  return {{"seed", std::to_string(options.seed)},
          {"shard", std::to_string(options.shard) + "/" + std::to_string(options.shards)},
          {"profile", options.profile},
          {"with", to_text(options.with)},
          {"like", options.like ? options.like->identity() : ""},
          {"device", options.run.device},
          {"plant", options.run.planted.engine},
          {"plant_case", options.plant_case},
          {"mutate_oracle", options.run.planted.oracle},
          {"mutate_checker", options.run.planted.checker},
          {"corpus", options.corpus},
          {"revision", revision()}};
}

std::string numerics_of(const CorpusCase& one) {
  return one.planned.decided ? one.planned.decided->numerics
                             : to_text(one.planned.scenario.numerics.front());
}

}  // namespace

CampaignBook::CampaignBook(const CampaignOptions& options)
    : options_(options),
      corpus_(options.corpus.empty() ? nullptr : std::make_unique<Corpus>(options.corpus)),
      log_(options.log.empty() ? nullptr
                               : std::make_unique<CampaignLog>(options.log, options.resume)) {
  report_.seed = options.seed;
  report_.device.kind = options.run.device;
  open_corpus();
  remember();
}

void CampaignBook::open_corpus() {
  std::vector<std::string> files;
  if (corpus_) files = corpus_->files();
  if (log_) {
    json::object campaign = header_of(options_);
    if (!log_->header().is_null()) {
      const json::object& there = log_->header().at("campaign").as_object();
      if (there.contains("corpus_files")) {
        files = json::value_to<std::vector<std::string>>(there.at("corpus_files"));
      }
    }
    read_corpus(files);
    campaign["corpus_files"] = json::value_from(files);
    log_->begin({{"tool", "lockstep"},
                 {"version", version()},
                 {"revision", revision()},
                 {"campaign", campaign}});
  } else {
    read_corpus(files);
  }
  for (CorpusCase& one : corpus_cases_) {
    decide_what_is_lacking(one.planned, options_.run.device);
    give_up_for_memory(one.planned, options_.run.device);
  }
}

// Leaves in `files` those that are scenarios: a log names no file that is moved away.
void CampaignBook::read_corpus(std::vector<std::string>& files) {
  if (!corpus_) return;
  corpus_cases_ = corpus_->read(files, report_.unreadable);
  // The user hears of it now, since the report at the end may be hours away.
  std::fputs(unreadable_text(report_.unreadable).c_str(), stderr);
  for (const UnreadableFile& one : report_.unreadable) std::erase(files, one.file);
}

void CampaignBook::remember() {
  if (!log_) return;
  std::size_t number = 1;  // The header is the first line.
  for (const json::value& line : log_->done()) {
    const CaseRecord record = record_of(line, ++number);
    if (record.index >= 0) {
      done_.insert(record.index);
    } else {
      done_corpus_.insert({record.corpus_file, record.result.numerics});
    }
    report_.add(record);
    ++report_.resumed;
  }
}

CaseRecord CampaignBook::record_of(const json::value& line, std::size_t number) const {
  try {
    return record_from_json(line);
  } catch (const std::exception&) {  // A key is missing, or has a value of another type.
    log_->refuse(number);
  }
}

bool CampaignBook::has(const CorpusCase& one) const {
  return done_corpus_.contains({one.file, numerics_of(one)});
}

void CampaignBook::finish(CaseRecord record, const CampaignCase& one) {
  if (fails(record.result)) {
    if (record.kind.empty()) classify(record, {});
    keep(record, one);
  }
  if (log_) log_->append(to_json(record), fails(record.result));
  report_.add(record);
}

void CampaignBook::keep(CaseRecord& record, const CampaignCase& one) {
  if (!corpus_ || record.index < 0 || record.kind == "oracle unstable") return;
  record.file = Corpus::file_of(record.failure_class);
  if (one.invalid) record.file = "refused/" + record.rule + "-" + record.file;
  corpus_->keep(record.file, one.invalid ? one.invalid->text : explained(record, one));
}

std::string CampaignBook::explained(const CaseRecord& record, const CampaignCase& one) const {
  std::string reason;
  for (const char c : record.result.reason) reason += c >= ' ' && c <= '~' ? c : ' ';
  return "# Found by lockstep fuzz --seed " + std::to_string(options_.seed) + " --profile " +
         options_.profile + (options_.with.any() ? " --with " + to_text(options_.with) : "") +
         (options_.like ? " --like " + options_.like_file : "") + ", case " +
         std::to_string(record.index) + " (" + version() + ", " + revision() + "), on " +
         options_.run.device + ".\n# " + to_text(record.result.verdict) + ", " +
         to_text(record.result.judge) + ": " + reason + "\n# " + record.kind + ": " +
         std::to_string(record.failed) + " of " + std::to_string(record.runs) +
         " further runs failed.\n# " + record.result.replay + "\n" + to_yaml(one.scenario);
}

}  // namespace lockstep
