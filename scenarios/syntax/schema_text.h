// The spelling of numbers and characters in a scenario file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/scenario.h"

namespace lockstep {

// Decimal digits, optional minus; saturates, since every range is smaller.
std::optional<std::int64_t> parse_int(std::string_view text);
// Decimal, optional fraction and exponent; infinite where a double does not hold it.
std::optional<double> parse_number(std::string_view text);
// Decimal of 0 or more, at most 6 digits after the point; saturates.
std::optional<Ratio> parse_ratio(std::string_view text);

// The int that somebody meant by 1.0, 0x10, 1_000, "3", 8k or 40 MB; units are powers of 1024.
std::optional<std::int64_t> guess_int(const std::string& text);

// Bytes of the UTF-8 character that the text begins with, 0 where there is none (overlong forms and
// surrogates are none).
std::size_t utf8_length(std::string_view text);
// UTF-8 characters.
std::size_t characters(std::string_view text);
// Text of somebody else's as it may be printed, on one line: what a terminal would obey or hide
// (C0, DEL, C1, line separators, marks that turn the direction of writing) and bytes that are no
// UTF-8 become \x1b or \u202e. Nothing in a file, a path or a peer's words can then clear a screen,
// forge a line or speak to a CI runner.
std::string shown(std::string_view text);
// The same for a whole message, whose lines are ours.
std::string shown_lines(std::string_view text);
// The same text, with U+FFFD for bytes that are no UTF-8: for JSON, which escapes the rest itself.
std::string as_utf8(std::string_view text);
// In quotes, as shown() and cut to a length that fits a message.
std::string quoted(const std::string& text);

}  // namespace lockstep
