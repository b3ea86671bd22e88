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

// The int that somebody meant by 1.0, 0x10, 1_000 or "3".
std::optional<std::int64_t> guess_int(const std::string& text);

// Bytes of the UTF-8 character that the text begins with, 0 where there is none (overlong forms and
// surrogates are none).
std::size_t utf8_length(std::string_view text);
// UTF-8 characters.
std::size_t characters(std::string_view text);
// Quotes a text and cuts it to a length that fits a message.
std::string quoted(const std::string& text);

}  // namespace lockstep
