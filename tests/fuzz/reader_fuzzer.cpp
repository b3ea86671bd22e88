// libFuzzer's entry: whatever bytes come, the reader neither crashes nor hangs, and what it accepts
// it can write again. Built by the preset `fuzz`, run by ci/fuzz_target.sh. Findings become files
// of tests/fuzz/corpus.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/reader_claims.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (lockstep::may_leave_the_folder(bytes)) return -1;  // Not kept in the corpus.
  const std::string why = lockstep::refuted_claim(bytes);
  if (why.empty()) return 0;
  std::fprintf(stderr, "REFUTED: %s\n", why.c_str());
  std::abort();
}
