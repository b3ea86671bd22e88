// Program and opened object share one C++ runtime, one DeviceError and one planted fault.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "engine/device/backend.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

template <class Function>
Function* find(const char* name) {
  static void* const object = dlopen("liblockstep_thrower.so", RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(object, nullptr) << dlerror();
  return object ? reinterpret_cast<Function*>(dlsym(object, name)) : nullptr;
}

TEST(Object, exceptions_are_caught_by_type_and_leave_no_trace) {
  const auto thrower = find<void()>("throw_device_error");
  ASSERT_NE(thrower, nullptr);
  for (int k = 0; k < 3; ++k) {
    std::string code;
    try {
      thrower();
    } catch (const DeviceError& error) {
      code = error.code();
    }
    EXPECT_EQ(code, "cudaErrorNoDevice");
    EXPECT_EQ(std::uncaught_exceptions(), 0);  // Two runtimes would count in two places.
    EXPECT_EQ(std::current_exception(), nullptr);
  }
}

TEST(Object, sees_the_fault_that_the_program_planted) {
  const auto sees = find<bool(const char*)>("sees_fault");
  ASSERT_NE(sees, nullptr);
  EXPECT_FALSE(sees("a-name"));
  plant_fault("a-name");
  EXPECT_TRUE(sees("a-name"));
  plant_fault("");
  EXPECT_FALSE(sees("a-name"));
}

// Where there is a GPU the device opens; everywhere else the failure has a code and a type.
TEST(Object, a_missing_gpu_is_a_device_error) {
  try {
    EXPECT_EQ(open_cuda()->info().kind, "cuda");
  } catch (const DeviceError& error) {
    EXPECT_FALSE(error.code().empty());
    EXPECT_NE(std::string(error.what()), "");
  }
  EXPECT_EQ(std::uncaught_exceptions(), 0);
}

}  // namespace
}  // namespace lockstep
