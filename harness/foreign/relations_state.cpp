// R10 and R12 to R14: what is left of earlier steps, scalars, interludes and amplifiers.
#include <algorithm>

#include "harness/foreign/engine_failure.h"
#include "harness/foreign/relation_parts.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"

namespace lockstep::foreign {
namespace {

constexpr std::size_t kMostOfADump = 256;
// More than the host of an engine in Python is ahead of the GPU with.
constexpr std::int64_t kDelayMicroseconds = 10000;
constexpr double kLeastDropped = 64;  // So that two draws differ.

bool same_documents(const Microbatch& a, const Microbatch& b) {
  return std::equal(a.documents.begin(), a.documents.end(), b.documents.begin(), b.documents.end(),
                    [](const Document& x, const Document& y) { return x.tokens == y.tokens; });
}

// The feed whose steps are these steps of `feed`, without a step in which anything is learned.
EngineFeed with_steps(const EngineFeed& feed, const std::vector<std::int64_t>& order) {
  EngineFeed made = feed;
  made.packs.clear();
  made.loss_scale.clear();
  made.steps = std::ssize(order);
  for (std::int64_t i = 0; i < made.steps; ++i) {
    made.packs[{false, i}] = feed.training(at(order, i));
    made.loss_scale.push_back(at(feed.loss_scale, at(order, i)));
  }
  made.learning_rate.assign(order.size(), 0.0f);
  return made;
}

// Tensors of `kinds` in step `from`, beside those of step `to` of the same run.
std::vector<TensorPair> steps_apart(const EngineRun& run, const std::set<std::string>& kinds,
                                    std::int64_t from, std::int64_t to) {
  std::vector<TensorPair> pairs;
  for (const TensorId& id : run.order) {
    if (id.at != StepPlace{false, from} || !kinds.contains(id.kind)) continue;
    TensorId other = id;
    other.at.step = to;
    pairs.push_back({.a = id, .b = other});
  }
  return pairs;
}

// Elements that dropout takes from the layers' inputs in the first step, on average and at least.
double dropped_elements(const EngineCase& one) {
  std::int64_t tokens = 0;
  for (const Microbatch& pack : one.feed().training(0)) {
    for (const Document& document : pack.documents) tokens += std::ssize(document.tokens);
  }
  return one.scenario().model.dropout.value() *
         static_cast<double>(tokens * one.scenario().model.hidden);
}

// Dropout is drawn anew in each step: of equal documents too.
void require_another_mask(const EngineCase& one, const EngineRun& run, std::int64_t step) {
  const std::vector<TensorPair> pairs = steps_apart(run, {"gradient"}, step, step + 2);
  const bool drawn = std::any_of(pairs.begin(), pairs.end(), [&](const TensorPair& pair) {
    return run.tensors.at(pair.a).nonzero > 0;
  });
  if (!drawn) throw NotApplicable(kNoGradient);
  if (one.differing(run, run, pairs, false).empty())
    throw_vacuous("dropout is the same in two steps");
}

// Scenarios with something put in between, or left out where it is there already.
struct Interlude {
  const char* choice;
  const char* key;  // That must be honoured.
  const char* counter;
  void (*change)(Scenario&);
};
constexpr Interlude kInterludes[] = {
    {"variant=evaluation", "training.eval_every", "evaluations",
     [](Scenario& s) {
       s.training.eval_every = s.training.eval_every > 0 ? 0 : 1;
       if (s.training.eval_every == 0) s.cuda_graph.evaluation = GraphEvaluation::eager;
     }},
    {"variant=recapture", "training.recapture_at", "recaptures", [](Scenario& s) {
       auto& steps = s.training.recapture_at;
       steps = steps.empty() ? std::vector{s.training.steps - 1} : std::vector<std::int64_t>{};
     }}};

// Compares training alone; the other run has other evaluations.
void interlude(EngineCase& one, const Interlude& put) {
  RunRequest other = variant(one, put.change, std::string("the run with another ") + put.key);
  other.feed = with_evaluations(one.feed(), make_feed(other.scenario));
  const EngineRun& base = one.base();
  const EngineRun run = one.run(other);
  std::vector<TensorPair> pairs = EngineCase::pairs_of(base, run);
  std::erase_if(pairs, [](const TensorPair& pair) { return pair.a.at.evaluation; });
  one.expect_equal({.a = one.asked(), .b = other, .choices = put.choice}, base, run, pairs);
  // There may be no graph to tear down behind a resume.
  const bool resumes = !one.scenario().training.resume_at.empty();
  if (!resumes && one.counts(put.counter) && base.counter(put.counter) == run.counter(put.counter))
    throw_vacuous(std::string(put.key) + " changes nothing in the counter " + put.counter,
                  put.choice);
}

// Resumes where the scenario has none, or none where it has them.
struct ResumeVariant {
  const char* choice;
  Scenario::Resume (*at)(const EngineCase&);
};

// The step in whose midst a run is resumed: steps follow, in which what was lost shows.
std::int64_t middle(const EngineCase& one) { return one.feed().steps / 2; }
std::int64_t other_ranks(const EngineCase& one) { return one.ranks() == 1 ? 2 : 1; }
constexpr ResumeVariant kResumes[] = {
    {"variant=resume", [](const EngineCase& one) { return Scenario::Resume{.step = middle(one)}; }},
    {"variant=resume-within",
     [](const EngineCase& one) {
       return Scenario::Resume{.step = middle(one), .microbatch = one.ranks()};
     }},
    {"variant=resume-on-other-ranks",
     [](const EngineCase& one) {
       return Scenario::Resume{.step = middle(one), .data = other_ranks(one)};
     }},
    {"variant=resume-within-on-other-ranks", [](const EngineCase& one) {
       return Scenario::Resume{.step = middle(one),
                               .microbatch = std::max(one.ranks(), other_ranks(one)),
                               .data = other_ranks(one)};
     }}};

void expect_resumed(EngineCase& one, const RunRequest& other, std::int64_t resumes,
                    const std::string& choice) {
  const EngineRun run = expect_base(one, other, choice);
  if (one.counts("resumes") && run.counter("resumes") != resumes * one.ranks())
    throw_vacuous("resumes is " + std::to_string(run.counter("resumes")), choice);
}

// Goes on, comes back to what it has saved, and goes on from there: in the same processes.
void roll_back(EngineCase& one) {
  if (!one.hello().has_word("run.rollback_at")) throw NotApplicable("the engine does not go back");
  if (!one.scenario().training.resume_at.empty())
    throw NotApplicable("the scenario has resumes of its own");
  RunRequest other = one.asked();
  other.rollback_at = {std::max<std::int64_t>(one.feed().steps - 2, 0)};
  // Gathers are then under way when it goes back.
  if (one.hello().delays.contains("gather"))
    other.amplify = {{"delay_us", {{"gather", kDelayMicroseconds}}}};
  other.what = "the run that goes back to an earlier step";
  const EngineRun run = expect_base(one, other, "variant=rollback");
  if (one.counts("rollbacks") && run.counter("rollbacks") != one.ranks())
    throw_vacuous("rollbacks is " + std::to_string(run.counter("rollbacks")), "variant=rollback");
}

// The scenario asks for it where the engine honours that key, else the request does.
void resume(EngineCase& one, const ResumeVariant& put) {
  const std::string choice = put.choice;
  if (!one.honours("training.resume_at")) {
    if (!one.honours("run.resume_at") || choice != "variant=resume" || one.feed().steps < 2)
      throw NotApplicable("the engine resumes no run so");
    RunRequest other = one.asked();
    other.resume_at = {one.feed().steps - 1};
    other.what = "the run that is resumed before its last step";
    return expect_resumed(one, other, 1, choice);
  }
  const bool has = !one.scenario().training.resume_at.empty();
  if (has && choice != "variant=resume") throw NotApplicable("the scenario has resumes of its own");
  const Scenario::Resume at = put.at(one);
  const RunRequest other = variant(
      one,
      [&](Scenario& s) {
        s.training.resume_at = has ? std::vector<Scenario::Resume>() : std::vector{at};
      },
      has ? "the run without resumes" : "the run that is resumed in its midst");
  if (!is_honoured(one, other.scenario)) throw NotApplicable("the engine resumes no run so");
  expect_resumed(one, other, has ? 0 : 1, choice);
}

bool choice_taken(const Choices& choices, const std::string& choice) {
  return choices.takes("variant", choice.substr(choice.find('=') + 1));
}

// Biases of experts move after each step in which tokens cannot be shared out equally.
void require_moving_biases(EngineCase& one) {
  const Scenario::Model::Moe& moe = one.scenario().model.moe;
  const EngineRun& base = one.base();
  for (std::int64_t step = 0; step < one.feed().steps; ++step) {
    std::int64_t tokens = 0;
    for (const Microbatch& pack : one.feed().training(step)) {
      for (const Document& document : pack.documents) tokens += std::ssize(document.tokens);
    }
    if (tokens * moe.top_k % moe.experts == 0) continue;
    for (const auto& [id, entry] : base.tensors) {
      const bool is_bias = id.kind == "weight" && id.name.ends_with(".router.bias");
      if (!is_bias || id.at != StepPlace{false, step}) continue;
      TensorId before = id;
      --before.at.step;
      const auto earlier = base.tensors.find(before);
      const bool stays =
          step == 0 ? entry.nonzero == 0
                    : earlier != base.tensors.end() && earlier->second.sha256 == entry.sha256;
      if (stays) throw_vacuous(id.text() + " is what it was before the step");
    }
  }
}

}  // namespace

static bool has_biases(const Scenario& scenario) {
  return scenario.model.moe.expert_bias && scenario.model.pattern.find('E') != std::string::npos;
}

std::string has_two_layouts(const EngineCase& one) {
  if (!one.honours("feed.learning_rate")) return "the learning rate is not honoured";
  if (std::string why = why_scales_are_of_earlier_steps(one); !why.empty()) return why;
  if (has_biases(one.scenario())) return "";
  const EngineFeed& feed = one.feed();
  if (feed.steps < 2) return "one step";
  if (one.scenario().model.dropout.millionths > 0 && dropped_elements(one) < kLeastDropped)
    return "dropout takes too little";
  const auto &a = feed.training(0), &b = feed.training(1);
  if (!one.scenario().training.change_microbatches_at.empty()) return "";
  if (a.size() != b.size()) return "the number of microbatches changes";
  return std::equal(a.begin(), a.end(), b.begin(), same_documents) ? "two steps are equal" : "";
}

// The last step by itself, where the number of microbatches changes: it is the same, with its
// number from the begin.
static void expect_alone(EngineCase& one) {
  if (one.scenario().model.dropout.millionths > 0)
    throw NotApplicable("dropout, and the number of microbatches changes");
  const std::int64_t last = one.feed().steps - 1;
  RunRequest given = one.asked_with(frozen(one.feed()));
  given.what = "the run as asked for, with a learning rate of 0";
  RunRequest alone = variant(
      one,
      [&](Scenario& s) {
        s.training.microbatches = s.training.microbatches_at(last);
        s.training.change_microbatches_at.clear();
        s.training.resume_at.clear();
        s.training.eval_every = 0;
        s.cuda_graph.evaluation = GraphEvaluation::eager;
      },
      "the one whose steps are all the last");
  if (!is_honoured(one, alone.scenario)) throw NotApplicable("no run of the last step alone");
  alone.feed = with_steps(one.feed(), std::vector<std::int64_t>(last + 1, last));
  const EngineRun a = one.run(given), b = one.run(alone);
  std::vector<TensorPair> pairs = EngineCase::pairs_of(a, b, {"gradient", "token_loss"});
  std::erase_if(pairs, [&](const TensorPair& pair) {
    return pair.a.at.evaluation || pair.a.at.step != last;
  });
  one.expect_equal({.a = given, .b = alone, .padding_too = false}, a, b, pairs);
  const bool some = std::any_of(pairs.begin(), pairs.end(), [&](const TensorPair& pair) {
    return pair.a.kind == "gradient" && a.tensors.contains(pair.a) &&
           a.tensors.at(pair.a).nonzero > 0;
  });
  if (!some) throw NotApplicable(kNoGradient);
}

void a_b_a(EngineCase& one, const Choices&) {
  if (has_biases(one.scenario())) return require_moving_biases(one);
  if (!one.scenario().training.change_microbatches_at.empty()) return expect_alone(one);
  const std::int64_t warm = warm_up(one.scenario());
  std::vector<std::int64_t> order(warm + 1, 0);
  order.insert(order.end(), {1, 0});
  RunRequest request = one.asked_with(
      [&](Scenario& s) {
        s.training.microbatches = s.training.microbatches_at(0);
        s.training.steps = std::ssize(order);
        s.training.eval_every = 0;
        s.training.recapture_at.clear();
        s.training.change_microbatches_at.clear();
        s.cuda_graph.evaluation = GraphEvaluation::eager;
      },
      "a step before another one and after it");
  request.feed = with_steps(one.feed(), order);
  const EngineRun run = one.run(request);
  if (one.scenario().model.dropout.millionths > 0) return require_another_mask(one, run, warm);
  one.expect_equal({.a = request, .b = request, .padding_too = false}, run, run,
                   steps_apart(run, {"gradient", "token_loss"}, warm, warm + 2));
  const std::vector<TensorPair> other = steps_apart(run, {"gradient"}, warm, warm + 1);
  const auto in_either = [&](const DocumentPlace& document) {
    return !document.at.evaluation && document.at.step < 2;
  };
  if (!has_target(one.feed(), in_either)) throw NotApplicable(kNoGradient);
  if (!other.empty() && one.differing(run, run, other, false).empty())
    throw_vacuous("other documents have the same gradients");
}

std::string is_scaled(const EngineCase& one) {
  if (!one.honours("feed.loss_scale")) return "the loss scale is not honoured";
  if (!one.hello().observes_kind("gradient")) return "no gradient is observed";
  if (std::string why = why_scales_are_of_earlier_steps(one); !why.empty()) return why;
  return why_documents_mix(one).empty() ? "" : "losses of routers are not scaled";
}

void scale(EngineCase& one, const Choices&) {
  RunRequest given = one.asked_with(frozen(one.feed()));
  given.what = "twice the run as asked for, with a learning rate of 0";
  RunRequest twice = given;
  for (float& value : twice.feed.loss_scale) value *= 2;
  twice.what = "the one with twice the loss scale";
  const EngineRun a = one.run(given), b = one.run(twice);
  one.expect_equal({.a = given, .b = twice}, a, b, EngineCase::pairs_of(a, b, {"token_loss"}));
  std::vector<TensorId> gradients;
  for (const TensorId& id : a.order) {
    const TensorEntry& entry = a.tensors.at(id);
    if (id.kind == "gradient" && entry.nonzero > 0) gradients.push_back(id);
  }
  if (gradients.empty()) throw NotApplicable(kNoGradient);
  for (std::size_t first = 0; first < gradients.size(); first += kMostOfADump) {
    const std::vector<TensorId> part(
        gradients.begin() + static_cast<std::ptrdiff_t>(first),
        gradients.begin() +
            static_cast<std::ptrdiff_t>(std::min(first + kMostOfADump, gradients.size())));
    const EngineCase::Dump doubled = one.doubled_dump(given, part);
    std::vector<TensorPair> pairs;
    for (const auto& [id, tensor] : doubled.tensors) pairs.push_back({.a = id, .b = id});
    one.expect_equal({.a = given, .b = twice, .a_is_doubled = true}, doubled.run, b, pairs);
  }
}

std::string has_interludes(const EngineCase& one) {
  const bool graphs = one.scenario().cuda_graph.impl != GraphImpl::none;
  if (one.honours("training.eval_every")) return "";
  if (one.honours("training.recapture_at") && graphs) return "";
  if (one.honours("training.resume_at")) return "";
  return one.honours("run.resume_at") && one.feed().steps > 1 ? ""
                                                              : "nothing can be put in between";
}

void interludes(EngineCase& one, const Choices& choices) {
  bool done = false;
  std::string why = "nothing can be put in between";
  const auto attempt = [&](const std::string& choice, const std::function<void()>& put) {
    if (!choice_taken(choices, choice)) return;
    try {
      put();
      done = true;
    } catch (const NotApplicable& reason) {
      why = reason.what();
    }
  };
  for (const Interlude& put : kInterludes) {
    if (one.honours(put.key)) attempt(put.choice, [&] { interlude(one, put); });
  }
  for (const ResumeVariant& put : kResumes) attempt(put.choice, [&] { resume(one, put); });
  attempt("variant=rollback", [&] { roll_back(one); });
  if (!done) throw NotApplicable(why);
}

std::string has_amplifiers(const EngineCase& one) {
  return one.hello().amplifies.empty() ? "the engine has no amplifier" : "";
}

void amplified(EngineCase& one, const Choices& choices) {
  RunRequest other = one.asked();
  if (one.hello().amplifies.contains("poison") && choices.takes("variant", "poison")) {
    other.amplify = {{"poison", true}};
    other.what = "the run with poisoned memory";
    expect_base(one, other, "variant=poison");
  }
  for (const std::string& stream : one.hello().delays) {
    const std::string name = "delay-" + stream;
    if (!choices.takes("variant", name)) continue;
    other.amplify = {{"delay_us", {{stream, kDelayMicroseconds}}}};
    other.what = "the run whose stream " + stream + " is held back";
    expect_base(one, other, "variant=" + name);
    RunRequest unwatched = other;
    unwatched.observe = kinds_of_steps(one.hello());
    if (unwatched.observe.empty()) continue;
    unwatched.what += ", less observed";
    expect_base(one, unwatched, "variant=" + name,
                {unwatched.observe.begin(), unwatched.observe.end()});
  }
}

}  // namespace lockstep::foreign
