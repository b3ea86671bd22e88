#include "engine/offload/time_model.h"

#include <algorithm>

#include "engine/plan/expert_buffer.h"
#include "kernels/core/at.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

double number(std::int64_t n) { return static_cast<double>(n); }

// Operations of a layer's products in the forward pass: two for each weight and row.
double forward_flop(const Scenario& scenario, const Part& part) {
  const Scenario::Model& m = scenario.model;
  const double rows = number(scenario.data.pack_length), d = number(m.hidden);
  const double matrices = m.mlp.activation == MlpActivation::swiglu ? 3 : 2;
  switch (at(m.pattern, part.layer)) {
    case 'M': {
      const double heads = number(m.mamba.d_inner / m.mamba.head_dim);
      const double columns =
          number(3 * m.mamba.d_inner + 2 * m.mamba.groups * m.mamba.state) + heads;
      return rows * 2 * d * columns;
    }
    case '*':
      return rows * 2 * d *
             number((2 * m.attention.heads + 2 * m.attention.kv_heads) * m.attention.head_dim);
    case '-':
      return rows * 2 * d * number(m.mlp.hidden) * matrices;
    default: {
      double flop = 0;
      if (part.has(Stage::router))
        flop += rows * 2 * d * (number(m.moe.experts) + number(m.moe.shared_hidden) * matrices);
      if (part.has(Stage::experts))
        flop += number(ExpertBuffer(scenario).rows) * 2 * d * number(m.moe.hidden) * matrices;
      return flop;
    }
  }
}

double scan_flop(const Scenario& scenario, const Part& part) {
  const Scenario::Model::Mamba& m = scenario.model.mamba;
  const bool scans = at(scenario.model.pattern, part.layer) == 'M';
  return scans ? number(scenario.data.pack_length) * 7 * number(m.d_inner * m.state) : 0;
}

// Operations on the pairs of rows of a document, for documents of kRowsOfADocument rows.
double attention_flop(const Scenario& scenario, const Part& part) {
  if (at(scenario.model.pattern, part.layer) != '*') return 0;
  const Scenario::Model::Attention& a = scenario.model.attention;
  const std::int64_t document = std::min<std::int64_t>(scenario.data.pack_length, kRowsOfADocument);
  return number(scenario.data.pack_length) * number(document) / 2 * 4 *
         number(a.heads * a.head_dim);
}

}  // namespace

PassSeconds pass_seconds(const Scenario& scenario, const std::vector<Segment>& segments,
                         bool has_head) {
  const bool bf16 = stores_bf16(scenario);
  const double rate = bf16 ? kTensorFlopPerSecond : kFp32FlopPerSecond;
  PassSeconds seconds;
  const auto add = [&](double products, double attention, double scans) {
    seconds.forward.push_back(products + attention + scans);
    seconds.backward.push_back(kBackwardOfProducts * products + kBackwardOfAttention * attention +
                               kBackwardOfScan * scans);
  };
  for (const Segment& segment : segments) {
    double flop = 0;
    double attention = 0;
    double scans = 0;
    for (const Part& part : segment.parts) {
      flop += forward_flop(scenario, part);
      attention += attention_flop(scenario, part);
      scans += scan_flop(scenario, part);
    }
    add(flop / rate, attention / (rate * kAttentionOfProducts), scans / kScanFlopPerSecond);
  }
  const double head =
      2 * number(scenario.data.pack_length * scenario.model.hidden * scenario.model.vocab);
  add(has_head ? head / rate : 0, 0, 0);
  return seconds;
}

}  // namespace lockstep
