// What fp8 saves of device memory and of gathers, counted by buffers of the standard model and of a
// small one.
#include "harness/bench/device_bytes.h"

#include <gtest/gtest.h>

#include "engine/parameters/parameter_list.h"
#include "engine/train/trainer.h"
#include "harness/bench/model.h"
#include "scenarios/fp8.h"

namespace lockstep {
namespace {

Scenario small() {
  Scenario s;
  s.name = "small";
  s.model.pattern = "M-M*-";
  s.model.hidden = 64;
  s.model.mlp.hidden = 160;
  s.data.pack_length = 512;
  s.training.microbatches = 4;
  return s;
}

Scenario in_precision(Scenario s, Numerics numerics, std::int64_t in_flight) {
  s.numerics = {numerics};
  s.training.in_flight = in_flight;
  return s;
}

std::int64_t bytes_of_a_microbatch(const Scenario& s, Numerics numerics) {
  return device_bytes(in_precision(s, numerics, 4)) - device_bytes(in_precision(s, numerics, 3));
}

// Inputs are saved in one byte instead of two; attention's output, which its backward pass reads,
// in both unless the projection saves it alone.
std::int64_t saved_bytes_of_a_row(const Scenario::Model& m, bool attn_proj_saved) {
  const std::int64_t mixed = m.attention.heads * m.attention.head_dim;
  std::int64_t bytes = 0;
  for (const char symbol : m.pattern) {
    bytes += m.hidden;
    if (symbol == 'M') bytes += m.mamba.d_inner;
    if (symbol == '-') bytes += m.mlp.hidden;
    if (symbol == '*' && !attn_proj_saved) bytes -= mixed;
  }
  return bytes;
}

// Each layer's word has six words of four bytes: amax, exponent and factor of X and of dY.
std::int64_t word_bytes(const Scenario& s) {
  std::int64_t bytes = 0;
  for (const ParameterSpec& spec : ParameterList(s.model).specs) bytes += spec.fp8_layer ? 24 : 0;
  return bytes;
}

std::int64_t fp8_weights(const Scenario& s) {
  std::int64_t elements = 0;
  for (const ParameterSpec& spec : ParameterList(s.model).specs)
    elements += spec.fp8_layer ? spec.rows * spec.cols : 0;
  return elements;
}

TEST(DeviceBytes, OfAMicrobatchAreFewerInFp8ByOneForEachSavedInput) {
  for (Scenario s : {small(), *standard_model("H1")}) {
    for (const bool saves : {false, true}) {
      const std::int64_t bf16 = bytes_of_a_microbatch(s, Numerics::bf16);
      if (saves) s.fp8.save_original_input = {Fp8Layer::attn_proj};
      const std::int64_t fp8 = bytes_of_a_microbatch(s, Numerics::fp8);
      EXPECT_EQ(bf16 - fp8,
                saved_bytes_of_a_row(s.model, saves) * s.data.pack_length - word_bytes(s))
          << s.name << ", attn_proj saved: " << saves;
    }
  }
  EXPECT_EQ(saved_bytes_of_a_row(standard_model("H1")->model, false), 65'536);
  EXPECT_EQ(saved_bytes_of_a_row(standard_model("H1")->model, true), 69'632);
}

// Codes and transposed codes of each weight take two bytes more; what products need beside them
// lies in memory that is there anyway.
TEST(DeviceBytes, WithFourInFlightAreFewerInFp8) {
  const Scenario h1 = *standard_model("H1");
  const std::int64_t bf16 = device_bytes(in_precision(h1, Numerics::bf16, 4)),
                     fp8 = device_bytes(in_precision(h1, Numerics::fp8, 4));
  EXPECT_GE(bf16 - fp8, 1'500'000'000);
  const std::int64_t saved = 4 * 65'536 * h1.data.pack_length, weights = 2 * fp8_weights(h1);
  EXPECT_NEAR(static_cast<double>(bf16 - fp8), static_cast<double>(saved - weights), 1e6);
  const Scenario s = small();
  EXPECT_LT(device_bytes(in_precision(s, Numerics::fp8, 4)),
            device_bytes(in_precision(s, Numerics::bf16, 4)));
}

TEST(DeviceBytes, OfGathersAreHalfWhereRanksGatherCodes) {
  for (Scenario s : {small(), *standard_model("H1")}) {
    s.numerics = {Numerics::fp8};
    s.parallel.data = 2;
    s.fsdp.strategy = Sharding::optim_grads;
    const std::int64_t weights = gathered_bytes(s);
    s.fp8.param_gather = true;
    EXPECT_EQ(weights - gathered_bytes(s), fp8_weights(s)) << s.name;
    s.fsdp.strategy = Sharding::no_shard;
    EXPECT_EQ(gathered_bytes(s), 0);
  }
}

// Steps take what was counted.
TEST(DeviceBytes, AreTheSameAsThoseOfARun) {
  for (const Numerics numerics : {Numerics::bf16, Numerics::fp8}) {
    const Scenario s = in_precision(small(), numerics, 2);
    const auto data = open_data(s);
    Device device(open_sim());
    Trainer trainer(device, s, *data);
    trainer.step();
    EXPECT_EQ(static_cast<std::int64_t>(device.backend().memory_high_water()), device_bytes(s));
  }
}

}  // namespace
}  // namespace lockstep
