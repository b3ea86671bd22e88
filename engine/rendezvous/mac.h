// HMAC-SHA256, AES-256-GCM as a MAC (GMAC), and random bytes, of libcrypto.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_cipher_ctx_st;  // libcrypto's EVP_CIPHER_CTX.

namespace lockstep {

using Digest = std::array<std::byte, 32>;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The MAC of the parts, one after the other. The key is not empty.
Digest hmac(std::span<const std::byte> key,
            std::initializer_list<std::span<const std::byte>> parts);

// Seals the frames of one direction with the tag of AES-256-GCM (NIST SP 800-38D), with nothing
// encrypted: many times as fast as HMAC, and as strong as long as no key has the same nonce twice.
// The nonce is how many frames went before, so that none can be changed, left out, repeated or
// taken from elsewhere.
using Tag = std::array<std::byte, 16>;
class Seal {
 public:
  explicit Seal(const Digest& key);
  // The next frame: its first bytes, those that follow, and then its tag.
  void begin(std::span<const std::byte> first);
  void add(std::span<const std::byte> more);
  Tag end();

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;  // Has the key.
  std::uint64_t count_ = 0;
};

// In a time that does not depend on where they differ.
bool are_same(std::span<const std::byte> a, std::span<const std::byte> b);
Digest random_digest();

std::string libcrypto_version();  // "OpenSSL 3.0.19 27 Jan 2026"

}  // namespace lockstep
