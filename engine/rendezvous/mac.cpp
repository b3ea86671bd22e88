#include "engine/rendezvous/mac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <cstring>
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

Seal::Seal(const Digest& key) : context_(EVP_CIPHER_CTX_new()) {
  static EVP_CIPHER* const algorithm = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  require_done(context_ && algorithm != nullptr &&
               EVP_EncryptInit_ex2(context_.get(), algorithm, bytes(key), nullptr, nullptr) == 1);
}

void Seal::Free::operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }

void Seal::begin(std::span<const std::byte> first) {
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data(), &count_, sizeof count_);
  ++count_;
  require_done(EVP_EncryptInit_ex2(context_.get(), nullptr, nullptr, nonce.data(), nullptr) == 1);
  add(first);
}

void Seal::add(std::span<const std::byte> more) {
  if (more.empty()) return;  // To libcrypto a null pointer says that nothing follows.
  int written = 0;
  require_done(EVP_EncryptUpdate(context_.get(), nullptr, &written, bytes(more),
                                 static_cast<int>(more.size())) == 1);
}

Tag Seal::end() {
  Tag tag;
  unsigned char nothing = 0;
  int written = 0;
  require_done(EVP_EncryptFinal_ex(context_.get(), &nothing, &written) == 1 &&
               EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG,
                                   static_cast<int>(tag.size()), tag.data()) == 1);
  return tag;
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
