#include "engine/cuda/nvtx.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace lockstep {
namespace {

class Nvtx final : public Profiler {
 public:
  explicit Nvtx(nvtxDomainHandle_t domain) : domain_(domain) {}
  std::uint64_t begin(const std::string& name) override {
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name.c_str();
    return nvtxDomainRangeStartEx(domain_, &attributes);
  }
  void end(std::uint64_t range) noexcept override { nvtxDomainRangeEnd(domain_, range); }

 private:
  nvtxDomainHandle_t domain_;
};

}  // namespace

Profiler* nvtx_profiler() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("lockstep");  // Null without a tool.
  static Nvtx profiler(domain);
  return domain ? &profiler : nullptr;
}
std::string nvtx_version() { return std::to_string(NVTX_VERSION); }

}  // namespace lockstep
#else  // A toolkit without NVTX.
namespace lockstep {
Profiler* nvtx_profiler() { return nullptr; }
std::string nvtx_version() { return ""; }
}  // namespace lockstep
#endif
