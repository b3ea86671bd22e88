// libFuzzer's entry: whatever lies in a feed's folder, reading it ends with what a run of the
// scenario needs or with a sentence. An input is the bytes of a tensor file, or numbers of which
// the tables of a feed are made, because most damaged files end at their header.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/wire/feed.h"
#include "harness/wire/tensor_file.h"
#include "scenarios/documents/layout.h"

namespace lockstep::wire {
namespace {

namespace fs = std::filesystem;
using Named = std::pair<std::string, TypedTensor>;

void refute(const char* why) {
  std::fprintf(stderr, "REFUTED: %s\n", why);
  std::abort();
}

const std::string& folder() {
  static const std::string made = [] {
    const std::string parent = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    std::string name = parent + "/lockstep-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    static const std::string kept = name;
    std::atexit([] { fs::remove_all(kept); });
    return name;
  }();
  return made;
}

// Two steps of two microbatches, an evaluation after the second.
Scenario scenario() {
  Scenario small;
  small.model.vocab = 16;
  small.data.pack_length = 8;
  small.training.steps = 2;
  small.training.microbatches = 2;
  small.training.eval_every = 2;
  return small;
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const std::uint8_t first = left_.front();
    left_ = left_.subspan(1);
    return first;
  }
  // Mostly as it should be; else any small number, or one of any size.
  std::int64_t number(std::int64_t right) {
    const std::uint8_t how = byte();
    if (how < 240) return right;
    if (how < 252) return static_cast<std::int8_t>(byte());
    std::uint64_t any = 0;
    for (int i = 0; i < 8; ++i) any = any << 8 | byte();
    return static_cast<std::int64_t>(any);
  }
  std::string rest() const { return {reinterpret_cast<const char*>(left_.data()), left_.size()}; }

 private:
  std::span<const std::uint8_t> left_;
};

template <class T>
TypedTensor tensor_of(const char* dtype, std::vector<std::int64_t> shape,
                      const std::vector<T>& values) {
  TypedTensor tensor{dtype, std::move(shape), {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

// The tables of a feed, of which some numbers are wrong.
std::vector<Named> tables(Input& input) {
  std::vector<std::int64_t> packs, documents;
  std::vector<std::int32_t> tokens, targets;
  for (const auto& [phase, step, number] :
       {std::array{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {1, 1, 0}, {1, 1, 1}}) {
    const std::int64_t first = std::ssize(documents) / 3, count = input.byte() % 4;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t length = input.byte() % 4;
      documents.insert(documents.end(),
                       {input.number(i), input.number(std::ssize(tokens)), input.number(length)});
      for (std::int64_t position = 0; position < length; ++position) {
        tokens.push_back(static_cast<std::int32_t>(input.number(input.byte() % 16)));
        targets.push_back(static_cast<std::int32_t>(input.number(-1)));
      }
    }
    packs.insert(packs.end(), {input.number(phase), input.number(step), input.number(number),
                               input.number(first), input.number(count)});
  }
  const std::vector<float> scalars(input.number(2) & 7, 1.0f);
  const std::int64_t rows = std::ssize(packs) / 5, count = std::ssize(documents) / 3;
  return {{"packs", tensor_of("I64", {rows, 5}, packs)},
          {"documents", tensor_of("I64", {count, 3}, documents)},
          {"tokens", tensor_of("I32", {std::ssize(tokens)}, tokens)},
          {"targets", tensor_of("I32", {std::ssize(targets)}, targets)},
          {"loss_scale", tensor_of("F32", {std::ssize(scalars)}, scalars)},
          {"learning_rate", tensor_of("F32", {std::ssize(scalars)}, scalars)}};
}

void write_raw(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void require_sound(const Feed& feed, const Scenario& scenario) {
  const auto look_at = [&](const StepData& step) {
    if (std::ssize(step.microbatches) != 2) refute("a step has other microbatches");
    for (const Microbatch& microbatch : step.microbatches) {
      if (pack_rows(scenario.data, lengths_of(microbatch)) > scenario.data.pack_length)
        refute("a pack has more rows than fit");
      for (const Document& document : microbatch.documents) {
        if (document.tokens.size() != document.targets.size()) refute("a token has no target");
        for (const std::int32_t token : document.tokens) {
          if (token < 0 || token >= scenario.model.vocab) refute("a token is no word");
        }
      }
    }
  };
  for (int step = 0; step < 2; ++step) look_at(feed.training(step));
  look_at(feed.evaluation(1));
}

}  // namespace

int try_input(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::string tables_at = folder() + "/data.safetensors",
                    weights_at = folder() + "/weights.safetensors";
  fs::remove(tables_at);
  fs::remove(weights_at);
  const std::uint8_t kind = input.byte();
  if (kind % 4 == 0) {
    write_raw(tables_at, input.rest());
  } else {
    write_tensor_file(tables_at, tables(input));
  }
  if (kind % 4 == 1) {
    write_raw(weights_at, input.rest());
  } else {
    write_tensor_file(weights_at, {{"w", tensor_of("F32", {1}, std::vector<float>{1})}});
  }
  const Scenario asked = scenario();
  try {
    require_sound(Feed(folder(), asked), asked);
  } catch (const WireError& refused) {
    if (*refused.what() == '\0') refute("a feed is refused without a reason");
  }
  return 0;
}

}  // namespace lockstep::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::wire::try_input(data, size);
}
