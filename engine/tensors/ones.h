// Memory whose every element is 1, from which tensors of that value are copied.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/tensors/tensor_pool.h"
#include "kernels/core/contract.h"
#include "kernels/core/require.h"

namespace lockstep {

class Ones {
 public:
  // Room for tensors of up to so many elements, in both types.
  Ones(Device& device, const Stream& stream, std::int64_t elements);

  template <class T>
  void fill(const Stream& stream, const Tensor<T>& to) const {
    const auto* const from = [this] {
      if constexpr (std::is_same_v<T, float>) {
        return wide_.data;
      } else {
        return narrow_.data;
      }
    }();
    require(to.size() <= wide_.size(), "as many ones are asked for as there are");
    stream.copy(to.data, from, to.size() * sizeof(T), CopyKind::device_to_device);
  }

 private:
  template <class T>
  Tensor<T> make(const Stream& stream, PinnedBuffer& staging, std::int64_t elements, T one);
  PinnedBuffer wide_staging_, narrow_staging_;
  TensorPool pool_;
  Tensor<float> wide_;
  Tensor<bf16> narrow_;
};

}  // namespace lockstep
