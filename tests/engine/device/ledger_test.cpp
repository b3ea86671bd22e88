// Ledgers of captures and of dry runs, and the sentence that tells them apart.
#include "engine/device/ledger.h"

#include <gmock/gmock.h>

#include <bit>
#include <functional>

#include "kernels/ops/accumulate.h"
#include "kernels/ops/optimizer.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {
namespace {

using ::testing::HasSubstr;

struct Region {
  Stream &a, &b;
  Event &e, &f;
  float *x, *y;
  float max_norm = 1;
  bool accumulates = true;
  bool zeroes = false;

  void operator()(StepLocation& place) const {
    place = {.step = 2, .microbatch = 1, .layer = 3, .part = "qkv"};
    a.record(e);
    b.wait(e);
    b.copy(y, x, 16, CopyKind::device_to_device);
    b.record(f);
    a.wait(f);
    if (accumulates) a.submit(AccumulateGradient{.g = tensor(y, 1, 4), .acc = tensor(x, 1, 4)});
    a.submit(GradientNorm{.sums = tensor(x, 1, 4), .norm = tensor(y, 1, 2), .max_norm = max_norm});
    if (zeroes) a.submit(ZeroGradient{.acc = tensor(x, 1, 4)});
  }
};

// Captures the region, changes it, and compares with its dry run.
std::string after(const std::function<void(Region&)>& change) {
  Device device(open_sim());
  Stream a(device, "a"), b(device, "b");
  Event e(device), f(device);
  const Floats x(device, 4), y(device, 4), z(device, 4);
  Region region{a, b, e, f, x.data(), y.data()};
  a.begin_capture();
  region(device.place);
  const Graph graph = a.end_capture();
  EXPECT_EQ(graph.ledger().ops(), 2);
  change(region);
  Ledger now;
  {
    const Device::RecordOnly dry(device, now);
    region(device.place);
  }
  return difference(graph.ledger(), now);
}

TEST(Ledger, ADryRunOfTheSameCodeIsEqual) {
  EXPECT_EQ(after([](Region&) {}), "");
}

TEST(Ledger, NamesAScalarThatChanged) {
  EXPECT_EQ(after([](Region& r) { r.max_norm = 0.5f; }),
            "entry 6, step 2, microbatch 1, layer 3, qkv: gradient_norm: the scalar max_norm "
            "changed from 0x3f800000 "
            "(1065353216, 1) to 0x3f000000 (1056964608, 0.5)");
}

TEST(Ledger, NamesTheOperandThatMoved) {
  std::string from, to;
  const std::string found = after([&](Region& r) { r.y += 1; });
  EXPECT_THAT(
      found,
      HasSubstr(
          "entry 2, step 2, microbatch 1, layer 3, qkv: copy of 16 bytes: the destination is not "
          "where it was captured"));
  EXPECT_THAT(after([](Region& r) { r.x += 1; }),
              HasSubstr("the source is not where it was captured"));
}

TEST(Ledger, NamesTheOpThatIsMissing) {
  EXPECT_THAT(
      after([](Region& r) { r.accumulates = false; }),
      HasSubstr(
          "entry 5, step 2, microbatch 1, layer 3, qkv: accumulate_gradient: is gradient_norm, was "
          "captured as accumulate_gradient"));
}

TEST(Ledger, NamesTheOpThatIsThereNow) {
  EXPECT_EQ(after([](Region& r) { r.zeroes = true; }),
            "entry 7, step 2, microbatch 1, layer 3, qkv: zero_gradient: not captured, but there "
            "now (7 entries captured, "
            "8 now)");
}

TEST(Ledger, NamesWorkThatEscapedToAStreamThatIsNotCaptured) {
  Device device(open_sim());
  const Stream a(device, "a"), b(device, "b");
  const Floats x(device, 4), y(device, 4);
  const auto region = [&] {
    a.submit(ZeroGradient{.acc = x.row()});
    b.submit(ZeroGradient{.acc = y.row()});
  };
  a.begin_capture();
  region();
  const Graph graph = a.end_capture();
  Ledger now;
  {
    const Device::RecordOnly dry(device, now);
    region();
  }
  EXPECT_EQ(difference(graph.ledger(), now),
            "entry 1: zero_gradient: not captured, but there now (1 entries captured, 2 now)");
}

Ledger one(const IssuedCall& entry) {
  Ledger ledger;
  ledger.append(entry);
  return ledger;
}

TEST(Ledger, NamesOperandsByIndexAndShape) {
  float x[16] = {}, y[16] = {};
  const auto entry = [&](const auto& op) { return one({SubmitCall{Submission(op)}, 0}); };
  const AccumulateGradient was{.g = tensor(x, 2, 4), .acc = tensor(y, 2, 4)};
  AccumulateGradient is = was;
  is.acc.data += 4;
  EXPECT_THAT(difference(entry(was), entry(is)),
              HasSubstr("accumulate_gradient: operand acc is not where it was captured"));
  is = was;
  is.g.rows = 1;
  EXPECT_EQ(difference(entry(was), entry(is)),
            "entry 0: accumulate_gradient: operand g has 1 rows, was captured with 2");
  is = was;
  is.g.pitch = 8;
  EXPECT_THAT(difference(entry(was), entry(is)),
              HasSubstr("operand g has a pitch of 32 bytes, was captured with 16"));
  is = was;
  is.g = {};
  EXPECT_THAT(difference(entry(was), entry(is)), HasSubstr("has 1 operands, was captured with 2"));
}

TEST(Ledger, ANanIsNeverTheSame) {
  float x[4] = {}, y[2] = {};
  const GradientNorm op{.sums = tensor(x, 1, 4),
                        .norm = tensor(y, 1, 2),
                        .max_norm = std::bit_cast<float>(0x7fc00000u)};
  const Ledger ledger = one({SubmitCall{Submission(op)}, 0});
  EXPECT_EQ(difference(ledger, ledger), "entry 0: gradient_norm: a scalar is NaN");
}

TEST(Ledger, ThePlaceIsNoDifferenceButTheStreamTheEventAndTheByteAre) {
  const IssuedCall wait{WaitCall{4}, 1};
  IssuedCall other = wait;
  other.place.layer = 7;
  EXPECT_EQ(difference(one(wait), one(other)), "");
  other.as<WaitCall>()->event = 5;
  EXPECT_EQ(
      difference(one(wait), one(other)),
      "entry 0, layer 7: wait for event 4: is wait for event 5, was captured as wait for event 4");
  other = wait;
  other.as<WaitCall>()->external = true;
  EXPECT_THAT(difference(one(wait), one(other)), HasSubstr("is external wait for event 4"));
  other = wait;
  other.stream = 0;
  EXPECT_THAT(difference(one(wait), one(other)),
              HasSubstr("is on stream 0, was captured on stream 1"));
  const IssuedCall fill{FillCall{nullptr, 1, 8}, 1};
  other = fill;
  other.as<FillCall>()->byte = 2;
  EXPECT_THAT(difference(one(fill), one(other)), HasSubstr("the byte is 2, was captured as 1"));
  EXPECT_THAT(difference(one(fill), Ledger()),
              HasSubstr("fill of 8 bytes: captured, but missing now"));
}

// An exchange of three ranks, as rank 1 makes it.
ExchangeCall exchange(CollectiveKind kind, std::byte* to, const std::byte* from) {
  return {Exchange{nullptr, kind, {"gather", 2}, 1, 3}, to, from, 8};
}

TEST(Ledger, AnExchangeIsWhatTheRanksMustAgreeOn) {
  std::byte memory[48];
  const IssuedCall gather{exchange(CollectiveKind::all_gather, memory, memory + 8), 1};
  IssuedCall other = gather;
  EXPECT_EQ(difference(one(gather), one(other)), "");
  other.as<ExchangeCall>()->exchange.name.unit = 3;
  EXPECT_EQ(difference(one(gather), one(other)),
            "entry 0: all_gather (gather of unit 2, 8 bytes a rank): is all_gather (gather of unit "
            "3, 8 bytes a rank), "
            "was captured as all_gather (gather of unit 2, 8 bytes a rank)");
  other = gather;
  other.as<ExchangeCall>()->to = memory + 8;
  EXPECT_THAT(difference(one(gather), one(other)),
              HasSubstr("(gather of unit 2, 8 bytes a rank): the destination is not where"));
}

TEST(Ledger, AnExchangeWritesWhatOthersSendAndCopiesItsOwn) {
  std::byte memory[72];
  const auto effects = [&](CollectiveKind kind, const std::byte* from) {
    std::string text;
    for (const Effect& one : effects_of(exchange(kind, memory, from))) {
      text += std::to_string(static_cast<std::byte*>(one.to) - memory) + "<";
      text += one.from == nullptr
                  ? ""
                  : std::to_string(static_cast<const std::byte*>(one.from) - memory);
      text += ":" + std::to_string(one.bytes) + " ";
    }
    return text;
  };
  EXPECT_EQ(effects(CollectiveKind::all_gather, memory + 24), "0<:8 8<24:8 16<:8 ");
  EXPECT_EQ(effects(CollectiveKind::all_gather, memory + 8),
            "0<:8 16<:8 ");  // Its own part lies there.
  EXPECT_EQ(effects(CollectiveKind::all_to_all, memory + 24), "0<24:24 ");
  EXPECT_EQ(effects(CollectiveKind::reduce_scatter, memory + 24), "0<24:8 0<32:8 0<40:8 ");
  EXPECT_EQ(effects(CollectiveKind::all_reduce, memory), "0<:8 ");
}

}  // namespace
}  // namespace lockstep::test
