// The role of a profiler for NVTX: a library that it opens and that takes the place of some of its
// calls.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <map>
#include <string>

namespace {

std::string told;
std::map<nvtxRangeId_t, std::string> names;
int domain;

nvtxDomainHandle_t create(const char* name) {
  told += std::string("domain ") + name + "\n";
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}
nvtxRangeId_t begin(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  const nvtxRangeId_t number = names.size() + 1;
  names[number] =
      attributes->messageType == NVTX_MESSAGE_TYPE_ASCII ? attributes->message.ascii : "?";
  told += "+" + names[number] + "\n";
  return number;
}
void end(nvtxDomainHandle_t, nvtxRangeId_t number) { told += "-" + names[number] + "\n"; }

}  // namespace

extern "C" const char* nvtx_listener_told() { return told.c_str(); }

// The name by which NVTX finds it.
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRangeStartEx] = reinterpret_cast<NvtxFunctionPointer>(begin);
  *table[NVTX_CBID_CORE2_DomainRangeEnd] = reinterpret_cast<NvtxFunctionPointer>(end);
  return 1;
}
