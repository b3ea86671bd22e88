#include "harness/campaign/merge.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <queue>
#include <sstream>
#include <tuple>

#include "harness/base/errors.h"
#include "harness/base/version.h"
#include "harness/campaign/corpus.h"
#include "harness/expect/run_estimate.h"
#include "harness/generate/features.h"
#include "harness/run/library.h"
#include "harness/run/refusal.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A pair of traits is one number, a trait is the pair with itself, and what has a name follows.
constexpr int kPairs = static_cast<int>(kMostTraits * kMostTraits);

struct Entry {
  std::string path, name;  // `name` is relative to its folder.
  Scenario scenario;
  std::vector<int> met;  // Ascending.
  double work = 0;
};

// Whether a campaign named the file: class, a hash of eight hex digits.
bool is_class(const std::string& name) {
  constexpr std::size_t kHash = 8;
  const std::string stem = fs::path(name).stem().string();
  if (stem.size() < kHash + 2 || stem[stem.size() - kHash - 1] != '-') return false;
  return std::all_of(stem.end() - kHash, stem.end(), [](unsigned char c) {
    return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
  });
}

class Reader {
 public:
  std::vector<Entry> folder(const std::string& folder) {
    std::vector<Entry> list;
    for (const std::string& path : scenario_files(folder)) {
      Entry entry{path, fs::relative(path, folder).string(), {}, {}, 0};
      if (read(entry)) list.push_back(std::move(entry));
    }
    return list;
  }
  void refuse_what_was_found() const {
    if (!errors_.empty()) throw refusal(errors_);
  }
  std::size_t names() const { return numbers_.size(); }

 private:
  bool read(Entry& entry) {
    const ReadResult read = read_scenario_file(entry.path);
    if (read.ok() || read.rule() == "L00") {
      add_traits(read.scenario, entry.met);
      entry.work = estimate_run(read.scenario).multiply_adds;
    } else {
      const std::size_t before = errors_.size();
      plan_file(entry.path, true, errors_);  // It knows who expects to be refused.
      if (errors_.size() > before) return false;
      if (!is_class(entry.name)) entry.met.push_back(number_of("rule " + read.rule()));
    }
    if (is_class(entry.name)) entry.met.push_back(number_of(entry.name));
    entry.scenario = read.scenario;
    std::sort(entry.met.begin(), entry.met.end());
    entry.met.erase(std::unique(entry.met.begin(), entry.met.end()), entry.met.end());
    return true;
  }

  static void add_traits(Scenario scenario, std::vector<int>& met) {
    const std::vector<Numerics> all = scenario.numerics;
    for (const Numerics numerics : all) {
      scenario.numerics = {numerics};
      const Traits traits = features_of(scenario);
      for (std::size_t a = 0; a < trait_names().size(); ++a) {
        for (std::size_t b = a; traits[a] && b < trait_names().size(); ++b) {
          // The pairs of rare sizes are counted nowhere.
          const bool counts = a == b || !(trait_names()[a].rare || trait_names()[b].rare);
          if (traits[b] && counts) met.push_back(static_cast<int>(a * kMostTraits + b));
        }
      }
    }
  }

  int number_of(const std::string& name) {
    return kPairs + numbers_.emplace(name, static_cast<int>(numbers_.size())).first->second;
  }

  std::map<std::string, int> numbers_;
  std::vector<ScenarioError> errors_;
};

// How many of the chosen files meet each thing.
class Met {
 public:
  explicit Met(std::size_t names) : count_(kPairs + names) {}
  void add(const Entry& entry, int times) {
    for (const int one : entry.met) at(count_, one) += times;
  }
  std::int64_t gain(const Entry& entry) const {
    return std::ranges::count_if(entry.met, [&](int one) { return at(count_, one) == 0; });
  }
  bool is_superfluous(const Entry& entry) const {
    return std::ranges::all_of(entry.met, [&](int one) { return at(count_, one) > 1; });
  }
  void count(MergeReport& report) const {
    for (int one = 0; one < std::ssize(count_); ++one) {
      if (at(count_, one) == 0) continue;
      const bool alone = one / kMostTraits == one % kMostTraits;
      ++(one >= kPairs ? report.classes : alone ? report.features : report.pairs);
    }
  }

 private:
  std::vector<int> count_;
};

// Indices of the files that are added, in the order of choice. A gain only falls while others are
// chosen, so a file whose gain is still what it was is the best one.
std::vector<std::int64_t> choose(const std::vector<Entry>& files, Met& met) {
  using Rank = std::tuple<std::int64_t, double, std::int64_t>;  // Gain, less work, first.
  std::priority_queue<Rank> best;
  const auto rank = [&](std::int64_t i) {
    return Rank{met.gain(at(files, i)), -at(files, i).work, -i};
  };
  for (std::int64_t i = 0; i < std::ssize(files); ++i) best.push(rank(i));
  std::vector<std::int64_t> chosen;
  for (; !best.empty() && std::get<0>(best.top()) > 0;) {
    const Rank top = best.top();
    best.pop();
    const std::int64_t i = -std::get<2>(top);
    if (const Rank now = rank(i); now != top) {
      best.push(now);
      continue;
    }
    met.add(at(files, i), 1);
    chosen.push_back(i);
  }
  std::vector<std::int64_t> needed;
  for (const std::int64_t i : chosen) {
    if (met.is_superfluous(at(files, i))) {
      met.add(at(files, i), -1);
    } else {
      needed.push_back(i);
    }
  }
  return needed;
}

// The file as it is, unless it names documents by a path from where it lies.
std::string text_for(const Entry& entry, const std::string& corpus) {
  std::ostringstream held;
  if (!(held << std::ifstream(entry.path, std::ios::binary).rdbuf()))
    throw WorldError(entry.path + ": cannot be read");
  const std::string bytes = held.str();
  const Scenario::Data& data = entry.scenario.data;
  if (!reads_bytes(data) || !fs::path(data.path).is_relative()) return bytes;
  std::string text;
  std::istringstream lines(bytes);
  for (std::string line; std::getline(lines, line) && line.starts_with("#");) text += line + "\n";
  Scenario moved = entry.scenario;
  const fs::path from = fs::absolute(corpus) / fs::path(entry.name).parent_path();
  moved.data.path = fs::proximate(fs::absolute(fs::path(moved.folder) / data.path), from).string();
  return text + to_yaml(moved);
}

std::string free_name(const std::string& corpus, const std::string& wish) {
  const fs::path path(wish);
  std::string name = wish;
  for (int i = 2; fs::exists(fs::path(corpus) / name); ++i) {
    name = (path.parent_path() / (path.stem().string() + "-" + std::to_string(i))).string() +
           path.extension().string();
  }
  return name;
}

}  // namespace

MergeReport merge_corpora(const std::string& folder, const std::vector<std::string>& folders) {
  Reader reader;
  std::vector<Entry> files;
  for (const std::string& one : folders) {
    for (Entry& entry : reader.folder(one)) files.push_back(std::move(entry));
  }
  reader.refuse_what_was_found();
  const Corpus corpus(folder);
  const std::vector<Entry> there = reader.folder(folder);
  reader.refuse_what_was_found();
  Met met(reader.names());
  for (const Entry& one : there) met.add(one, 1);
  MergeReport report{.there = there.size(), .read = files.size()};
  for (const std::int64_t i : choose(files, met)) {
    const Entry& entry = at(files, i);
    report.added.push_back(free_name(folder, entry.name));
    corpus.keep(report.added.back(), text_for(entry, folder));
  }
  met.count(report);
  return report;
}

std::string merge_text(const std::string& corpus, const MergeReport& report) {
  std::ostringstream out;
  for (const std::string& name : report.added) out << "added " << name << "\n";
  out << corpus << ": " << report.there << (report.there == 1 ? " file was" : " files were")
      << " there, " << report.added.size() << " of " << report.read << " added; together they meet "
      << report.features << " features, " << report.pairs << " pairs of them, and "
      << report.classes << " classes of failures and rules\n";
  return out.str();
}

boost::json::object merge_json(const std::string& corpus, const MergeReport& report) {
  return {{"tool", "lockstep"},
          {"version", version()},
          {"revision", revision()},
          {"corpus", corpus},
          {"there", report.there},
          {"read", report.read},
          {"added", boost::json::value_from(report.added)},
          {"features", report.features},
          {"pairs", report.pairs},
          {"classes", report.classes}};
}

}  // namespace lockstep
