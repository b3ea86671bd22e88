// `lockstep describe FILE`, and the reference of the schema: --schema, --defaults, --rules,
// --built, --offload-matrix.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>

#include "engine/nn/attention.h"
#include "engine/train/transfers.h"
#include "harness/base/options.h"
#include "harness/base/subprocess.h"
#include "harness/base/terminal.h"
#include "harness/base/write_file.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_commands.h"
#include "harness/cli/trace_run.h"
#include "harness/cli/write_reports.h"
#include "harness/expect/blind_spots.h"
#include "harness/expect/expectations.h"
#include "harness/expect/parameter_table.h"
#include "harness/expect/run_estimate.h"
#include "harness/judge/oracle_time.h"
#include "harness/megatron/from_megatron.h"
#include "harness/packing/histogram.h"
#include "harness/page/describe_page.h"
#include "harness/page/timeline.h"
#include "harness/report/describe_json.h"
#include "harness/report/offload_matrix.h"
#include "harness/report/offload_table.h"
#include "harness/report/sharding_table.h"
#include "harness/report/shared_memory_table.h"
#include "harness/run/refusal.h"
#include "harness/run/suite.h"
#include "scenarios/documents/layout.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/reference/reference.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/words.h"
#include "scenarios/syntax/nearest.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

constexpr double kTimelineSeconds = 60;  // Until the run for the drawing is given up.

// FNV-1a, 64 bits: names a canonical form, guards nothing.
std::string hash_text(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
  return hex;
}

// In MB, and from a thousand of a unit on in the next.
std::string bytes_text(double bytes) {
  const char* unit = "MB";
  bytes /= 1e6;
  for (const char* next : {"GB", "TB", "PB"}) {
    if (bytes < 1000) break;
    bytes /= 1000;
    unit = next;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.3f %s", bytes, unit);
  return text;
}

std::string duration_text(double seconds) {
  constexpr double kDay = 24 * 3600, kYear = 365 * kDay;
  const char* unit = "s";
  if (seconds >= kYear) {
    seconds /= kYear;
    unit = "years";
  } else if (seconds >= 2 * kDay) {
    seconds /= kDay;
    unit = "days";
  } else if (seconds >= 2 * 3600) {
    seconds /= 3600;
    unit = "hours";
  }
  char text[64];
  std::snprintf(text, sizeof text, seconds < 100 ? "%8.2g %s" : "%.0f %s", seconds, unit);
  return text;
}

std::string ranks_together(const Scenario& scenario) {
  const std::int64_t ranks = ranks_of_run(scenario);
  return ranks == 1 ? "" : ", all " + std::to_string(ranks) + " ranks together, in one process";
}

// Ranks of a list: "0, 1".
std::string ranks_text(std::int64_t first, std::int64_t step, std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i)
    text += (i > 0 ? ", " : "") + std::to_string(first + i * step);
  return text;
}

// The groups of ranks, and each stage's order of passes.
void write_stages(std::ostringstream& out, const Scenario& scenario) {
  constexpr std::size_t kMostPasses = 64;
  const std::int64_t data = scenario.parallel.data, stages = scenario.parallel.pipeline;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    out << "  stage " << stage << ", ranks " << ranks_text(stage * data, 1, data) << ":";
    const auto passes = pass_order(stage_schedule(scenario, stage, scenario.training.microbatches));
    for (std::size_t i = 0; i < std::min(passes.size(), kMostPasses); ++i) out << " " << passes[i];
    out << (passes.size() > kMostPasses ? " ...\n" : "\n");
  }
  for (std::int64_t d = 0; d < data; ++d)
    out << "  replica " << d << ": ranks " << ranks_text(d, data, stages) << "\n";
  if (scenario.parallel.transport != Transport::nccl) return;
  const std::vector<TransferWay> ways = ways_between_stages(scenario);
  out << "  transfers: " << ways.size() << " ways from rank to rank, "
      << std::ranges::count(ways, true, &TransferWay::needs_library)
      << " with an NCCL communicator on any machine, the others only where copies are impossible\n";
}

// The ranks that share experts, those that have the same, and what a rank keeps of each; "" where
// every rank has all.
std::string experts_table(const Scenario& scenario) {
  const std::int64_t apart = expert_ranks(scenario), data = scenario.parallel.data;
  if (apart == 1) return "";
  const std::int64_t own = scenario.model.moe.experts / apart;
  std::ostringstream out;
  out << "\nexperts: each layer's " << scenario.model.moe.experts << " lie over " << apart
      << " ranks\n";
  for (std::int64_t stage = 0; stage < scenario.parallel.pipeline; ++stage) {
    const std::int64_t first = stage * data;
    for (std::int64_t rank = 0; rank < apart; ++rank)
      out << "  experts " << rank * own << " to " << (rank + 1) * own - 1 << ": ranks "
          << ranks_text(first + rank, apart, data / apart) << "\n";
    for (std::int64_t replica = 0; replica < data / apart; ++replica)
      out << "  exchange of rows: ranks " << ranks_text(first + replica * apart, 1, apart) << "\n";
  }
  const bool keeps =
      scenario.fsdp.strategy == Sharding::no_shard || scenario.fsdp.strategy == Sharding::optim;
  if (keeps)
    out << "  accumulators of an expert's gradient: " << apart << ", one for each source\n";
  return out.str();
}

// The pieces of the model and the slots of each chunk; "" where training.in_flight says all.
std::string schedule_table(const Scenario& scenario) {
  if (!depth_follows(scenario)) return "";
  const Scenario::Parallel& parallel = scenario.parallel;
  std::ostringstream out;
  out << "\nschedule: " << word(parallel.schedule);
  if (parallel.chunks > 1)
    out << ", groups of " << parallel.group
        << (parallel.group == 1 ? " microbatch" : " microbatches");
  out << "\n";
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  int piece = 0, first = 0;
  const auto stages = static_cast<int>(parallel.pipeline);
  for (const std::int64_t count :
       blocks_of_pieces(std::ssize(blocks), parallel.pipeline * parallel.chunks)) {
    const int chunk = piece / stages, stage = piece % stages;
    const Scenario::Block& begin = at(blocks, first);
    first += static_cast<int>(count);
    const Scenario::Block& last = at(blocks, first - 1);
    const std::vector<std::int64_t> slots = chunk_slots(scenario, stage);
    out << "  piece " << piece++ << ", chunk " << chunk << " of stage " << stage << ": "
        << scenario.model.pattern.substr(begin.first, last.first + last.count - begin.first)
        << ", slots " << at(slots, chunk) << "\n";
  }
  if (stages > 1) write_stages(out, scenario);
  return out.str();
}

void write_regions(std::ostringstream& out, const Scenario& scenario) {
  std::int64_t slots = 0;
  for (std::int64_t piece = 0; piece < pieces_of(scenario); ++piece)
    slots += slots_of_piece(scenario, piece);
  const bool several = pieces_of(scenario) > 1;
  out << "\ngraphs: " << to_text(scenario.cuda_graph.impl) << ", " << graph_regions(scenario)
      << " regions, " << slots << (several ? " slots of all chunks, " : " slots, ")
      << scenario.cuda_graph.max_packed_seqs.size() << " buckets, warm-up "
      << scenario.cuda_graph.warmup_steps << " steps, documents of at most "
      << longest_captured(scenario) << " tokens, evaluations "
      << word(scenario.cuda_graph.evaluation);
  if (scenario.cuda_graph.capture_passes > 0)
    out << ", " << scenario.cuda_graph.capture_passes << " passes each way before each capture";
  out << "\n";
  int number = 0;
  for (const Scenario::Block& block : scenario.blocks()) {
    out << "  block " << number++ << " " << scenario.model.pattern.substr(block.first, block.count)
        << "  captured:";
    const std::vector<int> captured = captured_symbols(scenario, block);
    for (const int symbol : captured)
      out << " " << scenario.model.pattern[symbol] << "(layer " << symbol << ")";
    out << (captured.empty() ? " nothing" : "") << "\n";
  }
}

std::int64_t write_parameters(std::ostringstream& out, const Scenario& scenario) {
  std::int64_t total = 0;
  out << "\nparameters\n";
  int index = 0;
  for (const ParameterShape& one : parameter_table(scenario)) {
    char line[160];
    std::snprintf(line, sizeof line, "  %4d  %-34s [%lld, %lld]\n", index++, one.name.c_str(),
                  static_cast<long long>(one.rows), static_cast<long long>(one.cols));
    out << line;
    total += one.count();
  }
  out << "  total " << total << "\n";
  return total;
}

// From the scenario alone; a run is refused where the machine has less.
void write_estimate(std::ostringstream& out, const Scenario& scenario) {
  const RunEstimate estimate = estimate_run(scenario);
  const double engine = estimate.engine(static_cast<double>(scenario.parallel.data));
  char text[256];
  std::snprintf(text, sizeof text,
                "\na run takes at least%s\n  memory of train              %s\n"
                "  memory of verify             %s\n"
                "  multiply-adds of the engine  %.3g\n",
                ranks_together(scenario).c_str(), bytes_text(engine).c_str(),
                bytes_text(engine + estimate.reference).c_str(), estimate.multiply_adds);
  out << text;
  // cuDNN's attention is judged by an eager run of the engine.
  if (scenario.model.core_attention == CoreAttention::cudnn) return;
  for (const Numerics numerics : scenario.numerics) {
    const double seconds = measure_oracle(scenario, numerics).seconds(oracle_work(scenario));
    std::snprintf(text, sizeof text, "  the oracle in %s, about %s of a core here, estimated\n",
                  to_text(numerics), duration_text(seconds).c_str());
    out << text;
  }
}

void write_memory(std::ostringstream& out, const Scenario& scenario, std::int64_t parameters) {
  constexpr std::int64_t kBytes = 4;
  const std::int64_t state = parameters * kBytes * 4;  // Weight, gradient, m, v.
  const std::int64_t activations =
      activation_elements(scenario) * kBytes * scenario.training.in_flight;
  const auto text = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  out << "\nmemory estimate, with every tensor in fp32, of one unsharded copy\n"
      << "  weights, gradients, moments  " << text(state) << "\n  gradient of a microbatch     "
      << text(parameters * kBytes) << "\n  stored activations, " << scenario.training.in_flight
      << " in flight " << text(activations) << "\n";
  if (!with_sharding(scenario)) return;
  out << "  a rank has weights, gradients and moments of "
      << bytes_text(estimate_run(scenario).state) << " after sharding by "
      << word(scenario.fsdp.strategy) << "\n";
}

// The calls of cuDNN for each bucket, as far as they do not depend on the documents.
void write_attention(std::ostringstream& out, const Scenario& scenario) {
  const Scenario::Model& model = scenario.model;
  if (model.core_attention != CoreAttention::cudnn) return;
  const std::int64_t rows = scenario.data.pack_length;
  const std::int64_t longest = with_graphs(scenario) ? longest_captured(scenario) : rows;
  out << "\nattention by cuDNN, calls by length of document (workspace by reckoning; a GPU says "
         "its own)\n";
  for (const std::int64_t capacity : scenario.cuda_graph.max_packed_seqs) {
    const CudnnShapes shapes(model.attention, rows, capacity, longest);
    const AttentionClasses classes(rows, capacity, longest);
    out << "  bucket of " << capacity << ": forward " << capacity << " documents of at most "
        << longest << "; backward";
    for (int c = 1; c < classes.count; ++c) {
      const AttentionClass& one = classes.list[c];
      out << (c > 1 ? "," : "") << " " << one.slots << " of " << one.above + 1 << ".."
          << one.longest;
    }
    out << "; " << bytes_text(static_cast<double>(reckoned_workspace(shapes.backward))) << "\n";
  }
}

// Returns what expect.counters asks of a counter, if no run can meet it; "" where a run can.
std::string contradiction(const Scenario& scenario, const Expectation& one) {
  const auto rule = scenario.expect.counters.find(one.counter);
  if (rule == scenario.expect.counters.end()) return "";
  const std::optional<std::int64_t> min = rule->second.min, max = rule->second.max;
  if ((!min || *min <= one.max) && (!max || *max >= one.min)) return "";
  return range_text(min.value_or(0), max.value_or(std::numeric_limits<std::int64_t>::max()));
}

// Rules of expect.counters that no run can meet.
void write_contradictions(std::ostringstream& out, const Scenario& scenario,
                          const std::vector<Expectation>& expected) {
  for (const Expectation& one : expected) {
    const std::string asked = contradiction(scenario, one);
    if (asked.empty()) continue;
    out << "  a run will be violated: expect.counters." << to_text(one.counter) << " asks for "
        << asked << ", and a run counts " << range_text(one.min, one.max) << "\n";
  }
}

// Returns whether no run can meet expect.counters.
bool write_expectations(std::ostringstream& out, const Scenario& scenario) {
  if (!can_be_counted_at_once(scenario)) {
    out << "\nwhat a run must count\n  not counted: too many microbatches and tokens\n";
    return false;
  }
  bool contradicted = false;
  for (const PrecisionExpectations& precision : expectations_by_precision(scenario)) {
    out << "\nwhat a run in " << to_text(precision.numerics) << " must count\n";
    for (const Expectation& one : precision.expected) {
      const std::string asked = contradiction(scenario, one);
      contradicted = contradicted || !asked.empty();
      out << "  " << to_text(one.counter) << " " << range_text(one.min, one.max)
          << (asked.empty() ? "" : " (the file expects " + asked + ")") << "  (" << one.why
          << ")\n";
    }
    write_contradictions(out, scenario, precision.expected);
  }
  return contradicted;
}

// The numbers that a capacity is chosen by.
void write_packs(std::ostream& out, const Scenario& scenario) {
  constexpr double kMostPacks = 2000;  // Each is made to be counted.
  if (!can_be_counted_at_once(scenario) ||
      microbatches_of_a_rank(scenario) * static_cast<double>(scenario.parallel.data) > kMostPacks)
    return;
  const PackHistogram histogram = count_packs(scenario);
  if (histogram.empty()) return;
  out << "\ndocuments in a pack: " << packs(histogram) << " packs, P50 "
      << percentile(histogram, 0.5) << ", P90 " << percentile(histogram, 0.9) << ", P99 "
      << percentile(histogram, 0.99) << ", at most " << histogram.rbegin()->first << "\n";
}

void write_resumes(std::ostream& out, const Scenario& scenario) {
  if (scenario.training.resume_at.empty()) return;
  out << "\na run of its own is saved, destroyed and loaded\n";
  for (const Scenario::Resume& one : scenario.training.resume_at) {
    out << "  before step " << one.step;
    if (one.microbatch > 0)
      out << ", microbatch " << one.microbatch << " of " << global_microbatches(scenario, one.step);
    if (one.data != 0 && one.data != scenario.parallel.data)
      out << ", and goes on with " << one.data << (one.data == 1 ? " rank" : " ranks");
    out << "\n";
  }
}

struct Description {
  std::string text, parameters;
};

Description description(const Scenario& scenario) {
  std::ostringstream out;
  out << scenario.name << "\n";
  if (!scenario.description.empty()) out << shown(scenario.description) << "\n";
  out << "numerics:";
  for (const Numerics numerics : scenario.numerics) out << " " << to_text(numerics);
  out << "\ncanonical form: " << hash_text(canonical_form(scenario)) << "\n";
  out << schedule_table(scenario) << experts_table(scenario);
  write_regions(out, scenario);
  write_packs(out, scenario);
  std::ostringstream parameters;  // The longest part comes last.
  write_memory(out, scenario, write_parameters(parameters, scenario));
  write_estimate(out, scenario);
  out << shared_memory_table(scenario);
  write_resumes(out, scenario);
  write_attention(out, scenario);
  out << offload_tables(scenario);
  const std::string sharding = sharding_table(scenario);
  out << sharding;
  for (const std::string& spot : blind_spots(scenario)) {
    if (sharding.empty()) out << "  " << blind_line(spot) << "\n";
  }
  const std::vector<std::string> idle = keys_without_effect(scenario);
  out << "\nkeys without effect\n";
  for (const std::string& key : idle) out << "  " << key << "\n";
  if (idle.empty()) out << "  none\n";
  return {out.str(), parameters.str()};
}

void print_built() {
  for (const Feature& feature : features())
    std::printf("%-9s  %s\n", feature.built ? "built" : "not built", feature.key.c_str());
}

// Prints the reference of the keys; --json writes it as a JSON Schema for editors.
ExitStatus describe_schema(const Options& options, Form form) {
  if (options.has("json")) write_file(options.text("json"), json_schema() + "\n");
  std::fputs(key_reference(form).c_str(), stdout);
  return ExitStatus::held;
}

// Prints all rules, or the one that is named.
ExitStatus describe_rules(const Options& options, Form form) {
  const std::string id = options.words().empty() ? "" : options.word();
  const std::string rules = rule_reference(form, id);
  if (rules.empty()) throw RequestError("there is no rule " + id + nearest_hint(id, rule_names()));
  std::fputs(rules.c_str(), stdout);
  return ExitStatus::held;
}

// Prints the file with every key, computed defaults included.
ExitStatus describe_defaults(const Options& options) {
  const ReadResult read = read_scenario_file(options.word());
  if (!read.ok() && read.rule() != "L00") throw refusal(read.errors);
  std::fputs(to_full_yaml(read.scenario).c_str(), stdout);
  return ExitStatus::held;
}

// Prints the scenario that a file of Megatron-LM asks for, with what it could not carry.
ExitStatus describe_from_megatron(const Options& options) {
  const std::string path = options.text("from-megatron");
  const Sizes sizes = options.text("sizes") == "keep" ? Sizes::keep : Sizes::small;
  const std::string yaml = to_commented_yaml(from_megatron_file(path, sizes), path, sizes);
  if (options.has("yaml")) {
    write_file(options.text("yaml"), yaml);
  } else {
    std::fputs(yaml.c_str(), stdout);
  }
  return ExitStatus::held;
}

// Why no timeline of the scenario is drawn; "" if one is. It runs the engine on the simulator.
std::string no_timeline(const ReadResult& read) {
  constexpr double kMostMultiplyAdds = 2e9;  // A few seconds of one core.
  const Scenario& s = read.scenario;
  if (!read.ok()) return "The timeline is drawn for a scenario that is legal and built.";
  if (estimate_run(s).multiply_adds > kMostMultiplyAdds) {
    return "No timeline: the scenario is too large to be run here for it. One with smaller "
           "widths has the same streams.";
  }
  if (captures_calls(s)) {
    return "No timeline: a graph holds none of the exchanges between ranks of one process. impl: "
           "partial has the same passes, without moe and whole layers of experts where these lie "
           "on several ranks.";
  }
  return "";
}

// Drawn of the step in which graphs are replayed, if there is one.
std::string timeline_of(Scenario scenario) {
  scenario.numerics.resize(1);
  scenario.checker.hazards = false;
  scenario.training.steps = std::min(scenario.training.steps, scenario.cuda_graph.warmup_steps + 2);
  const ChildEnd end =
      run_in_child([&] { return timeline(trace_case(scenario, RunOptions{})); }, kTimelineSeconds);
  if (!end.finished) throw WorldError("the run for the timeline died: " + end.last_words);
  return end.output;
}

void write_page(const Options& options, const ReadResult& read, const std::string& text) {
  if (!options.has("html")) return;
  boost::json::object page = boost::json::parse(describe_json(read)).as_object();
  page["file"] = as_utf8(options.word());
  page["text"] = as_utf8(text);
  if (read.ok() || read.rule() == "L00") page["scenario_text"] = to_yaml(read.scenario);
  page["no_timeline"] = no_timeline(read);
  if (page["no_timeline"].as_string().empty()) page["timeline"] = timeline_of(read.scenario);
  write_file(options.text("html"), describe_page(signed_report(options, std::move(page))));
}

}  // namespace

Options describe_options() {
  Options options("describe", "[FILE | RULE]",
                  "What a scenario means: graphs, parameters, memory, legality. Needs no device.",
                  1);
  options.flag("schema", "the keys of a scenario file; with --json a JSON Schema for editors");
  options.flag("defaults", "the file as YAML with every key");
  options.flag("rules", "the rules that refuse a file, or the RULE that is named, such as L26");
  options.flag("markdown", "with --schema or --rules: as the tables of docs/scenario-reference.md");
  options.flag("built", "list what of the schema is built");
  options.flag("offload-matrix",
               "what may be offloaded under which graphs, or the rule against it");
  options.text("json", "write what it means, or the errors, to this file");
  options.text("html",
               "write it to a page, with the copies and exchanges of a step drawn beside its ops");
  options.text("offload-json", "write the offload plan to this file");
  options.text("engine",
               "what the engine that this command starts honours, and what is left of FILE on it");
  options.text("from-megatron",
               "print the scenario that this file asks for: a command line of Megatron-LM, or the "
               "block of arguments in its log");
  options.choice("sizes", "with --from-megatron: sizes as they are, or small ones of that kind",
                 {"small", "keep"}, "small");
  options.text("yaml", "with --from-megatron: write the scenario to this file");
  options.device();  // Every command takes it; none is opened here.
  options
      .example("lockstep describe mine.yaml",
               "graphs, offload plan, memory, and whether it is legal")
      .example("lockstep describe --rules L26", "why a rule refuses, with an example");
  return options;
}

ExitStatus describe_command(const Words& words) {
  Options options = describe_options();
  if (!options.parse(words)) return ExitStatus::held;
  const CommandFiles files(options, {"offload-json", "yaml"});
  if (options.has("from-megatron")) {
    files.reads("--from-megatron", options.text("from-megatron"));
    return describe_from_megatron(options);
  }
  if (asks_for_engine(options)) {
    return describe_engine(
        options, options.words().empty() ? std::vector<Scenario>() : cases_of(options.word(), ""));
  }
  const Form form = options.has("markdown") ? Form::markdown : Form::text;
  if (options.has("schema")) return describe_schema(options, form);
  if (options.has("rules")) return describe_rules(options, form);
  if (options.has("defaults")) return describe_defaults(options);
  if (options.has("built")) print_built();
  if (options.has("offload-matrix")) std::fputs(offload_matrix().c_str(), stdout);
  const bool printed = options.has("built") || options.has("offload-matrix");
  if (printed && options.words().empty()) {
    if (options.has("json"))
      write_file(options.text("json"), boost::json::serialize(built_json()) + "\n");
    return ExitStatus::held;
  }
  const std::string& file = options.word();
  const bool is_rule =
      std::find(rule_names().begin() + 1, rule_names().end(), file) != rule_names().end();
  if (is_rule && !std::filesystem::exists(file))
    throw RequestError("there is no file " + file + "; for the rule: lockstep describe --rules " +
                       file);
  const ReadResult read = read_scenario_file(file);
  files.reads_data_of(read.scenario);
  if (options.has("json")) {
    write_file(options.text("json"), describe_json(read) + "\n");
  }
  if (!read.ok() && read.rule() != "L00") {
    write_page(options, read, "");
    throw refusal(read.errors);
  }
  if (options.has("offload-json")) {
    // A list where there are several chunks or stages.
    const boost::json::array plans = offload_json(read.scenario);
    const boost::json::value all = plans.size() == 1 ? plans.front() : boost::json::value(plans);
    write_file(options.text("offload-json"), boost::json::serialize(all) + "\n");
  }
  std::ostringstream out;
  const Description described = description(read.scenario);
  out << described.text;
  std::ostringstream expectations;
  const bool contradicted = read.ok() && write_expectations(expectations, read.scenario);
  out << "\nlegality: legal" << (read.ok() ? ", built" : ", not built here")
      << (contradicted ? ", but no run can meet expect.counters" : "") << "\n"
      << expectations.str() << described.parameters;
  std::fputs(fitted(out.str(), terminal_at(STDOUT_FILENO)).c_str(), stdout);
  std::fflush(stdout);
  write_page(options, read, out.str());
  if (!read.ok()) throw refusal(read.errors);
  return ExitStatus::held;
}

}  // namespace lockstep
