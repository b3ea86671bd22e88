#include "engine/rendezvous/mac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <memory>
#include <stdexcept>

namespace lockstep {
namespace {

const unsigned char* bytes(std::span<const std::byte> from) {
  return reinterpret_cast<const unsigned char*>(from.data());
}

void require_done(bool done) {
  if (!done) throw std::runtime_error("libcrypto fails");
}

}  // namespace

Digest hmac(std::span<const std::byte> key,
            std::initializer_list<std::span<const std::byte>> parts) {
  static EVP_MAC* const algorithm = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr);
  require_done(algorithm != nullptr);
  const std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)> context(EVP_MAC_CTX_new(algorithm),
                                                                     EVP_MAC_CTX_free);
  char sha256[] = "SHA256";
  const OSSL_PARAM settings[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
                                 OSSL_PARAM_construct_end()};
  require_done(context && EVP_MAC_init(context.get(), bytes(key), key.size(), settings) == 1);
  for (const std::span<const std::byte> part : parts)
    require_done(EVP_MAC_update(context.get(), bytes(part), part.size()) == 1);
  Digest digest;
  std::size_t written = 0;
  require_done(EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(digest.data()),
                             &written, digest.size()) == 1 &&
               written == digest.size());
  return digest;
}

bool are_same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Digest random_digest() {
  Digest digest;
  require_done(RAND_bytes(reinterpret_cast<unsigned char*>(digest.data()),
                          static_cast<int>(digest.size())) == 1);
  return digest;
}

std::string libcrypto_version() { return OpenSSL_version(OPENSSL_VERSION); }

}  // namespace lockstep
