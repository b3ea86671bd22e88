// Work of an op that the rest of the op and most of what follows do not need, such as the last sum
// of a parameter's gradient. Where a graph is captured it may run beside what follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/core/operand.h"

namespace lockstep {

// Memory that some work touches, in rows. What it only reads may be read beside it.
struct Touched {
  const std::byte* begin;
  std::int64_t rows, row_bytes, pitch_bytes;
  bool is_written;
};

template <class T, Access kAccess>
void add_touched(std::vector<Touched>& list, const Operand<T, kAccess>& operand) {
  constexpr std::int64_t kSize = sizeof(T);
  if (operand)
    list.push_back({reinterpret_cast<const std::byte*>(operand.data), operand.rows,
                    operand.cols * kSize, operand.pitch * kSize, kAccess != Access::in});
}

// Who captures the graph. One a thread, while an op of the capture runs.
class Beside {
 public:
  virtual ~Beside() = default;
  // Calls `launch`, which launches on the op's stream. Everything that the stream has so far comes
  // first, and no later op of the stream that touches the same memory begins before its end.
  virtual void run(std::vector<Touched> touched, const std::function<void()>& launch) = 0;

  static Beside*& current() {
    static thread_local Beside* current = nullptr;
    return current;
  }
};

// Launches one of the last kernels of an op so that it may run beside the ops that follow.
// `operands`: all that it touches; no earlier kernel of the op writes to them beside it.
template <class Launch, class... Operands>
void launch_beside(const Launch& launch, const Operands&... operands) {
  Beside* const beside = Beside::current();
  if (beside == nullptr) return launch();
  std::vector<Touched> touched;
  (add_touched(touched, operands), ...);
  beside->run(std::move(touched), launch);
}

}  // namespace lockstep
