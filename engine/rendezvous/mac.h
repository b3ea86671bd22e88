// HMAC-SHA256, ChaCha20-Poly1305 as a MAC, and random bytes, of libcrypto.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
// The tag of ChaCha20-Poly1305 (RFC 8439) over the parts, with nothing encrypted: several times as
// fast as HMAC, and as strong as long as no key has the same number twice.
using Tag = std::array<std::byte, 16>;
Tag tag_of(const Digest& key, std::uint64_t number,
           std::initializer_list<std::span<const std::byte>> parts);
// In a time that does not depend on where they differ.
bool are_same(std::span<const std::byte> a, std::span<const std::byte> b);
Digest random_digest();

std::string libcrypto_version();  // "OpenSSL 3.0.19 27 Jan 2026"

}  // namespace lockstep
