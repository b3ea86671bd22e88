// The kinds of text that keys take: what each allows, and the nearest text that it allows.
#pragma once

#include "scenarios/schema/types.h"

namespace lockstep {

Text name_text();
Text description_text();
Text pattern_text();
Text path_text();
Text digest_text();
Text role_text();

}  // namespace lockstep
