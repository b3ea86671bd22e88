// `lockstep fuzz`
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>

#include "harness/base/options.h"
#include "harness/base/terminal.h"
#include "harness/base/work_share.h"
#include "harness/base/write_file.h"
#include "harness/campaign/campaign.h"
#include "harness/campaign/log.h"
#include "harness/campaign/merge.h"
#include "harness/campaign/nights.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_commands.h"
#include "harness/cli/write_reports.h"
#include "harness/generate/case.h"
#include "harness/generate/outside.h"
#include "harness/page/nights_page.h"
#include "harness/run/device_choice.h"
#include "harness/run/memory_check.h"
#include "harness/run/planted.h"

namespace lockstep {
namespace {

std::uint64_t number_of(const std::string& text, const char* what) {
  std::size_t end = 0;
  try {
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    const std::uint64_t value = digits ? std::stoull(text, &end) : 0;
    if (digits && end == text.size()) return value;
  } catch (const std::out_of_range&) {
  }
  throw RequestError(std::string(what) + " '" + text + "' is no whole number");
}

// The one number that nothing else decides: it is printed, and from then on is the seed. 53 bits,
// so that every reader of JSON keeps it.
std::uint64_t fresh_seed() {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed)
    throw WorldError("no random numbers for a seed");
  return seed >> 11;
}

// The log's own seed comes first: a campaign is resumed without knowing it.
std::uint64_t seed_of(const Options& options) {
  if (options.has("seed")) return number_of(options.text("seed"), "--seed");
  if (options.has("resume")) {
    const CampaignLog log(options.text("log"), true);
    if (!log.header().is_null()) {
      return number_of(boost::json::value_to<std::string>(log.header().at("campaign").at("seed")),
                       "the log's seed");
    }
  }
  if (const char* given = std::getenv("LOCKSTEP_SEED"); given && *given)
    return number_of(given, "LOCKSTEP_SEED");
  return fresh_seed();
}

std::shared_ptr<const Likeness> likeness_of(const Options& options) {
  if (!options.has("like")) return nullptr;
  if (options.text("profile") == "near-legal")
    throw RequestError("--like draws legal scenarios, and --profile near-legal refused ones");
  return std::make_shared<Likeness>(Likeness::of_file(options.text("like")));
}

// Refuses a file that this machine cannot run, as the commands do that run it alone.
void require_like(const CampaignOptions& campaign) {
  if (!campaign.like) return;
  const Scenario& file = campaign.like->scenario();
  std::string lacks = lacking(file, campaign.run.device);
  if (lacks.empty()) lacks = lack_of_memory(file, memory_use(file, campaign.run.device));
  if (!lacks.empty()) throw WorldError("--like " + campaign.like_file + ": " + lacks);
}

// Refuses what this machine lacks for every case, and what contradicts itself.
void require_outside(const CampaignOptions& campaign) {
  if (!campaign.with.any()) return;
  if (campaign.profile == "near-legal")
    throw RequestError("--with asks for runs, and --profile near-legal runs nothing");
  if (campaign.run.device == "cuda" && campaign.with.transports() && campaign.jobs > 1) {
    throw RequestError("--with " + to_text(campaign.with) +
                       ": the ranks of a case take all GPUs, so --jobs is 1");
  }
  // Each by itself, so that the message names what is lacking.
  for (const OutsideName& one : outside_names()) {
    Outside alone;
    alone.*one.asked = campaign.with.*one.asked;
    const std::string lacks = lacking(smallest_with(alone), campaign.run.device);
    if (!lacks.empty()) throw WorldError("--with " + std::string(one.name) + ": " + lacks);
  }
}

CampaignOptions campaign_of(const Options& options) {
  CampaignOptions campaign;
  take_planted(options, campaign.run);
  const WorkShare share = work_share(options.text("shard"));
  campaign.shard = share.number;
  campaign.shards = share.of;
  campaign.profile = options.text("profile");
  campaign.corpus = options.text("corpus");
  campaign.log = options.text("log");
  campaign.resume = options.has("resume");
  if (campaign.resume && campaign.log.empty()) throw RequestError("--resume needs --log");
  campaign.budget_s = options.has("budget") ? options.seconds("budget") : 0;
  campaign.count = options.number("count");
  if (campaign.count == 0 && campaign.budget_s == 0) campaign.count = 1000;
  campaign.timeout_s = options.seconds("timeout");
  campaign.memory_limit = options.number("memory-limit");
  campaign.reruns = static_cast<int>(options.number("reruns"));
  campaign.stop_after = options.number("stop-after");
  campaign.only_case = options.number("case");
  campaign.plant_case = options.number("plant-case");
  campaign.quiet = options.has("quiet");
  campaign.times = options.has("times");
  campaign.coverage = options.has("coverage");
  campaign.run.device = choose_device(options.text("device"));
  campaign.jobs = static_cast<int>(options.number("jobs"));
  campaign.like_file = options.text("like");
  campaign.like = likeness_of(options);
  campaign.with = outside_of(options.text("with"));
  require_outside(campaign);
  require_like(campaign);
  if (campaign.jobs == 0 && campaign.run.device == "cuda" && campaign.with.transports())
    campaign.jobs = 1;
  if (campaign.jobs == 0) {
    campaign.jobs = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    if (campaign.run.device == "cuda") campaign.jobs = std::min(campaign.jobs, 8);
  }
  campaign.seed = seed_of(options);
  return campaign;
}

// --merge and --nights run nothing, so most options would be ignored.
void refuse_all_but(const Options& options, const std::vector<std::string>& read) {
  for (const OptionHelp& one : options.all()) {
    const bool is_read = std::ranges::find(read, one.name) != read.end();
    if (!is_read && options.has(one.name.c_str())) {
      throw RequestError("--" + read.front() + " runs nothing, so --" + one.name +
                         " means nothing");
    }
  }
}

ExitStatus merge(const Options& options) {
  refuse_all_but(options, {"merge", "corpus", "json", "quiet"});
  if (!options.has("corpus"))
    throw RequestError("--merge: say with --corpus where the merged corpus goes");
  if (options.words().empty())
    throw RequestError("--merge: name the folders: lockstep fuzz --merge DIR... --corpus OUT");
  const std::string corpus = options.text("corpus");
  const MergeReport report = merge_corpora(corpus, options.words());
  if (options.has("json"))
    write_file(options.text("json"), boost::json::serialize(merge_json(corpus, report)) + "\n");
  std::fputs(fitted(merge_text(corpus, report), terminal_at(STDOUT_FILENO)).c_str(), stdout);
  return ExitStatus::held;
}

ExitStatus show_nights(const Options& options) {
  refuse_all_but(options, {"nights", "json", "html", "quiet"});
  if (options.words().empty())
    throw RequestError("--nights: name the reports: lockstep fuzz --nights FILE... --html PAGE");
  const boost::json::object nights = nights_of(options.words());
  write_reports(options, "", nights, nights_page);
  std::fputs(fitted(nights_text(nights), terminal_at(STDOUT_FILENO)).c_str(), stdout);
  return ExitStatus::held;
}

}  // namespace

Options fuzz_options() {
  Options options("fuzz", "[DIR | FILE...]",
                  "Runs random scenarios, engine against oracle, on worker processes. Equal seed, "
                  "profile and index,\n"
                  "equal case. A failing case is run again to tell races from certainties, and "
                  "kept in the corpus.",
                  -1);
  options.text("seed", "of the campaign; default: LOCKSTEP_SEED, else a fresh one, printed")
      .number("count",
              "random cases, of all shards together; default 1000, or no end with --budget", 0, 0)
      .seconds("budget", "seconds after which no case is begun; default: no limit")
      .number("jobs", "worker processes; default: one per core, at most 8 on cuda", 0, 0, 1024)
      .choice("profile", "small, schedules or near-legal", profiles(), "small")
      .text("with",
            "a list of processes, nccl, cudnn and fp8: ranks are processes, over shared memory or "
            "NCCL; "
            "attention by cuDNN in every other case")
      .text("like",
            "draw scenarios around this file: the keys that it names stay, all others are drawn")
      .text("corpus", "folder of scenarios: run first, and new failures are kept there")
      .flag("merge",
            "run nothing: add to --corpus what files of the folders DIR meet that it does not: "
            "features, pairs of them, classes of failures")
      .flag("nights",
            "run nothing: tell what the campaigns found whose JSON reports are FILE..., by night "
            "and by class of failure; with --html on a page")
      .text("log", "write a line of JSON per case to this file")
      .flag("coverage", "print how often each feature was drawn, and pairs that never met")
      .flag("times", "tell where the time of a case on a GPU goes, by kind of call")
      .flag("resume", "go on with the campaign in --log")
      .text("shard", "i/n: only cases whose number leaves i when divided by n", "0/1")
      .seconds("timeout", "seconds after which the watchdog kills a case", 60)
      .number("memory-limit", "MiB of address space of a worker, sim only; 0: no limit", 0, 0)
      .number("reruns", "further runs of a failing case", 5, 0)
      .number("stop-after", "begin no case after so many failures; 0: never", 0, 0)
      .number("case", "run this random case alone", -1, -1)
      .number("plant-case", "plant the fault in this case alone", -1, -1);
  options.device().reports().planted();
  add_engine_options(options);
  options
      .example("lockstep fuzz --budget 10m --corpus failures --html night.html",
               "ten minutes of fresh cases; failures are kept and run first the next time")
      .example("lockstep fuzz --seed 7 --case 132", "one case of a campaign again")
      .example("lockstep fuzz --like mine.yaml --budget 60",
               "a minute around one's own configuration")
      .example("lockstep fuzz --merge night-1 night-2 --corpus small",
               "few files that meet all that those of two nights do")
      .example("lockstep fuzz --nights night-*/campaign-*.json --html nights.html",
               "seeds and failures of many nights on one page")
      .example("lockstep fuzz --device cuda --with nccl,cudnn --budget 10m",
               "ten minutes with a process and a GPU for each rank");
  return options;
}

ExitStatus fuzz_command(const Words& words) {
  Options options = fuzz_options();
  if (!options.parse(words)) return ExitStatus::held;
  const CommandFiles files(options, {"log"});
  files.makes_folder("--corpus", options.text("corpus"));
  if (options.has("log")) files.makes_folder("--log", options.text("log") + ".state");
  if (options.has("merge")) return merge(options);
  if (options.has("nights")) return show_nights(options);
  if (!options.words().empty()) {
    throw RequestError("'" + options.words().front() +
                       "': fuzz takes words with --merge and --nights alone");
  }
  if (options.has("like")) files.reads("--like", options.text("like"));
  if (asks_for_engine(options))
    return fuzz_on_engine(options, seed_of(options), likeness_of(options));
  const CampaignOptions campaign = campaign_of(options);
  std::fprintf(stderr, "lockstep fuzz: seed %llu, %s, %d worker%s\n",
               static_cast<unsigned long long>(campaign.seed), campaign.run.device.c_str(),
               campaign.jobs, campaign.jobs == 1 ? "" : "s");
  const CampaignReport report = run_campaign(campaign);
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  std::fputs(fitted(campaign_text(campaign, report), terminal).c_str(), stdout);
  write_reports(options, campaign_junit(report), campaign_json(campaign, report));
  return campaign_status(campaign, report);
}

}  // namespace lockstep
