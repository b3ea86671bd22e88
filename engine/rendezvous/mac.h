// HMAC-SHA256 and random bytes, of libcrypto.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

using Digest = std::array<std::byte, 32>;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The MAC of the parts, one after the other. The key is not empty.
Digest hmac(std::span<const std::byte> key,
            std::initializer_list<std::span<const std::byte>> parts);
// In a time that does not depend on where they differ.
bool are_same(std::span<const std::byte> a, std::span<const std::byte> b);
Digest random_digest();

std::string libcrypto_version();  // "OpenSSL 3.0.19 27 Jan 2026"

}  // namespace lockstep
