#include "harness/wire/honoured_keys.h"

#include <set>

namespace lockstep::wire {

bool is_for_engines(const std::string& key) {
  static const std::set<std::string> never{"schema",
                                           "name",
                                           "description",
                                           "training.steps",
                                           "training.seed",
                                           "parallel.transport",
                                           "training.optimizer.lr",
                                           "training.optimizer.min_lr",
                                           "training.optimizer.schedule",
                                           "training.optimizer.lr_warmup",
                                           "training.optimizer.decay_steps"};
  static const std::set<std::string> data{"data.pack_length", "data.tail", "data.align",
                                          "data.gaps"};
  if (never.contains(key) || key.starts_with("checker.") || key.starts_with("expect."))
    return false;
  return !key.starts_with("data.") || data.contains(key);
}

}  // namespace lockstep::wire
