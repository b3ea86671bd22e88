// libFuzzer's entry: whatever a token's text is, reading it ends with a scenario or with a
// sentence, and a scenario that was read has a token of its own that means the same. The bytes are
// tried as the token's text, and as the text that a token holds, whose checksum is then right.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "scenarios/io/reader.h"
#include "tests/fuzz/reader_claims.h"

namespace {

void refute(const std::string& why) {
  std::fprintf(stderr, "REFUTED: %s\n", why.c_str());
  std::abort();
}

void read(const std::string& token) {
  lockstep::Scenario scenario;
  try {
    scenario = lockstep::read_token(token);
  } catch (const std::runtime_error& refused) {
    if (*refused.what() == '\0') refute("a token is refused without a reason");
    return;
  } catch (const std::invalid_argument& refused) {
    if (*refused.what() == '\0') refute("a token is refused without a reason");
    return;
  }
  if (scenario.numerics.size() != 1) refute("a token has several precisions");
  const std::string why = lockstep::token_reads_back(scenario, scenario.numerics.front());
  if (!why.empty()) refute(why);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (lockstep::may_leave_the_folder(bytes)) return -1;  // Not kept in the corpus.
  read(bytes);
  read("ls" + bytes);
  return 0;
}
