#include "harness/case/verdict.h"

namespace lockstep {

const char* to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds:
      return "holds";
    case Verdict::violated:
      return "violated";
    case Verdict::broken:
      return "broken";
    case Verdict::gave_up:
      return "gave_up";
    case Verdict::skipped:
      return "skipped";
  }
  return "broken";
}

}  // namespace lockstep
