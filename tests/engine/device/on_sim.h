// Small things that the tests of the device layer share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/device/device.h"

namespace lockstep::test {

using Policy = SimOptions::Policy;

inline const std::vector<Policy>& all_policies() {
  static const std::vector<Policy> list{Policy::program, Policy::lazy, Policy::random, Policy::pct};
  return list;
}

// `count` floats on the device.
struct Floats {
  Floats(Device& device, std::int64_t count)
      : count(count), buffer(device, static_cast<std::size_t>(4 * count)) {}
  float* data() const { return static_cast<float*>(buffer.data()); }
  std::size_t bytes() const { return buffer.bytes(); }
  Tensor<float> row() const { return tensor(data(), 1, count); }
  std::int64_t count;
  DeviceBuffer buffer;
};

inline std::vector<float> read(const Stream& stream, const Floats& from) {
  std::vector<float> to(static_cast<std::size_t>(from.count));
  stream.copy(to.data(), from.data(), from.bytes(), CopyKind::device_to_host);
  stream.synchronize();
  return to;
}

inline void write(const Stream& stream, const Floats& to, float value) {
  const std::vector<float> from(static_cast<std::size_t>(to.count), value);
  stream.copy(to.data(), from.data(), to.bytes(), CopyKind::host_to_device);
}

// The code of the DeviceError that `call` throws, or "" if it throws none.
template <class Call>
std::string code_of(Call call) {
  try {
    call();
  } catch (const DeviceError& error) {
    return error.code();
  }
  return "";
}

}  // namespace lockstep::test
