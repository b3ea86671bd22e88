// Kinds lengths and distribution: given or drawn lengths, tokens drawn from training.seed.
#include "scenarios/documents/documents.h"

#include <cmath>

#include "scenarios/documents/layout.h"
#include "scenarios/documents/random.h"
#include "scenarios/documents/sources.h"
#include "scenarios/documents/targets.h"

namespace lockstep {
namespace {

class DrawnSource : public DataSource {
 public:
  explicit DrawnSource(const Scenario& scenario) : scenario_(scenario) {}

  StepData training(std::int64_t step) const override {
    return read(step, Purpose::token, Purpose::mask);
  }

  StepData evaluation(std::int64_t step) const override {
    return read(step, Purpose::evaluation_token, Purpose::evaluation_mask);
  }

  // Tokens are drawn with equal chances, so nothing can be learnt but that.
  double unigram_entropy() const override {
    return std::log(static_cast<double>(scenario_.model.vocab));
  }

 private:
  StepData read(std::int64_t step, Purpose tokens, Purpose mask) const {
    StepData data;
    data.microbatches.resize(global_microbatches(scenario_, step));
    for (std::size_t m = 0; m < data.microbatches.size(); ++m) {
      DrawPlace place{step, static_cast<std::int64_t>(m), 0};
      for (const std::int64_t length : microbatch_lengths(scenario_, step, place.microbatch)) {
        data.microbatches[m].documents.push_back(document(place, length, tokens, mask));
        ++place.document;
      }
    }
    finish_step(data);
    return data;
  }

  Document document(const DrawPlace& place, std::int64_t length, Purpose tokens,
                    Purpose mask) const {
    Document document;
    document.tokens.reserve(length);
    for (std::int64_t position = 0; position < length; ++position) {
      const std::uint32_t word = draw(scenario_.training.seed, tokens, place, position);
      document.tokens.push_back(static_cast<std::int32_t>(scaled(word, scenario_.model.vocab)));
    }
    set_targets(
        scenario_, mask, place, -1, [](std::size_t) { return true; }, document);
    return document;
  }

  Scenario scenario_;
};

}  // namespace

std::unique_ptr<DataSource> open_drawn_data(const Scenario& scenario) {
  return std::make_unique<DrawnSource>(scenario);
}

std::unique_ptr<DataSource> open_data(const Scenario& scenario) {
  return reads_bytes(scenario.data) ? open_byte_data(scenario) : open_drawn_data(scenario);
}

}  // namespace lockstep
