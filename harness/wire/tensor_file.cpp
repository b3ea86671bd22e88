#include "harness/wire/tensor_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>

#include "harness/base/machine_memory.h"
#include "harness/base/write_file.h"

namespace lockstep::wire {
namespace {

constexpr std::uint64_t kMostHeader = 16u << 20;

std::size_t size_of(const std::string& dtype) {
  static const std::map<std::string, std::size_t> sizes{
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  const auto found = sizes.find(dtype);
  if (found == sizes.end()) throw WireError("no type " + dtype);
  return found->second;
}

std::uint64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::uint64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(extent), &count))
      throw WireError("a shape that no memory holds");
  }
  return count;
}

struct Entry {
  std::string name;
  TypedTensor tensor;
  std::uint64_t begin, end;
};

Entry entry_of(const boost::json::key_value_pair& item) {
  const boost::json::object& fields = item.value().as_object();
  Entry entry{item.key(), {}, 0, 0};
  entry.tensor.dtype = fields.at("dtype").as_string();
  for (const boost::json::value& extent : fields.at("shape").as_array())
    entry.tensor.shape.push_back(extent.to_number<std::int64_t>());
  const boost::json::array& offsets = fields.at("data_offsets").as_array();
  if (offsets.size() != 2) throw WireError(entry.name + ": data_offsets are two numbers");
  entry.begin = offsets[0].to_number<std::uint64_t>();
  entry.end = offsets[1].to_number<std::uint64_t>();
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements_of(entry.tensor.shape), size_of(entry.tensor.dtype),
                             &bytes) ||
      entry.end < entry.begin || entry.end - entry.begin != bytes)
    throw WireError(entry.name + ": its bytes are not its elements");
  return entry;
}

std::vector<Entry> entries_of(const std::string& header, std::uint64_t data_bytes) {
  std::vector<Entry> entries;
  const boost::json::value parsed = boost::json::parse(header);
  for (const boost::json::key_value_pair& item : parsed.as_object()) {
    if (item.key() != "__metadata__") entries.push_back(entry_of(item));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at) throw WireError(entry.name + ": a hole or an overlap before it");
    at = entry.end;
  }
  if (at != data_bytes) throw WireError("the tensors do not cover the file");
  return entries;
}

// A regular file that is open: a pipe would be waited for, and a device has no end.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
      const std::string why = std::strerror(errno);
      close();
      throw WireError("it cannot be opened: " + why);
    }
    if (!S_ISREG(status.st_mode)) {
      close();
      throw WireError("it is not a regular file");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~OpenFile() { close(); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  std::uint64_t size() const { return size_; }
  void read(std::uint64_t first, std::span<std::byte> to) const {
    while (!to.empty()) {
      const ssize_t count = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(first));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw WireError("it cannot be read to its end");
      to = to.subspan(count);
      first += static_cast<std::uint64_t>(count);
    }
  }

 private:
  void close() const {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor_;
  std::uint64_t size_ = 0;
};

std::map<std::string, TypedTensor> read(const std::string& path) {
  const OpenFile file(path);
  // A file may announce any size at no cost, and memory that is there may be taken from others.
  if (file.size() > static_cast<std::uint64_t>(machine_memory().bytes) / 4)
    throw WireError("its " + std::to_string(file.size()) + " bytes are too many for this machine");
  std::array<std::byte, 8> length{};
  if (file.size() < length.size()) throw WireError("it is shorter than its header's length");
  file.read(0, length);
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < length.size(); ++i)
    header_bytes |= std::to_integer<std::uint64_t>(length[i]) << (8 * i);
  if (header_bytes > kMostHeader || header_bytes > file.size() - length.size())
    throw WireError("its header is too long");
  std::string header(header_bytes, '\0');
  file.read(length.size(), std::as_writable_bytes(std::span(header)));
  const std::uint64_t first = length.size() + header_bytes;
  std::map<std::string, TypedTensor> tensors;
  for (Entry& entry : entries_of(header, file.size() - first)) {
    entry.tensor.bytes.resize(entry.end - entry.begin);
    file.read(first + entry.begin, entry.tensor.bytes);
    tensors.emplace(std::move(entry.name), std::move(entry.tensor));
  }
  return tensors;
}

// Only a type of floats has a sign to clear, in the last byte of the element.
bool has_signed_zero(const std::string& dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

}  // namespace

std::map<std::string, TypedTensor> read_tensor_file(const std::string& path) {
  try {
    return read(path);
  } catch (const WireError& error) {
    throw WireError(path + ": " + error.what());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // The JSON has no text, number or key.
    throw WireError(path + ": its header is not that of a tensor file");
  }
}

void write_tensor_file(const std::string& path,
                       const std::vector<std::pair<std::string, TypedTensor>>& tensors) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) throw WireError(path + ": it is there already");
  boost::json::object header;
  std::uint64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", boost::json::value_from(tensor.shape)},
                    {"data_offsets", {at, at + tensor.bytes.size()}}};
    at += tensor.bytes.size();
  }
  std::string text = boost::json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i));
  file += text;
  for (const auto& [name, tensor] : tensors)
    file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  write_file(path, file);
}

template <class T>
std::vector<T> values_of(const TypedTensor& tensor) {
  if (sizeof(T) != size_of(tensor.dtype))
    throw WireError("a tensor of another type: " + tensor.dtype);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}
template std::vector<float> values_of(const TypedTensor&);
template std::vector<std::int32_t> values_of(const TypedTensor&);
template std::vector<std::int64_t> values_of(const TypedTensor&);

std::vector<std::byte> stored_bytes(std::span<const float> values, bool narrow) {
  const std::size_t each = narrow ? 2 : 4;
  std::vector<std::byte> bytes(values.size() * each);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]) >> (narrow ? 16 : 0);
    std::memcpy(bytes.data() + i * each, &bits, each);
  }
  return bytes;
}

std::string digest(const std::string& dtype, std::span<const std::byte> bytes) {
  std::vector<std::byte> taken(bytes.begin(), bytes.end());
  const std::size_t each = size_of(dtype);
  for (std::size_t i = 0; has_signed_zero(dtype) && i + each <= taken.size(); i += each) {
    const auto* first = taken.data() + i;
    const bool zero =
        taken[i + each - 1] == std::byte{0x80} &&
        std::all_of(first, first + each - 1, [](std::byte b) { return b == std::byte{0}; });
    if (zero) taken[i + each - 1] = std::byte{0};
  }
  std::array<unsigned char, 32> sum{};
  unsigned length = 0;
  if (EVP_Digest(taken.data(), taken.size(), sum.data(), &length, EVP_sha256(), nullptr) != 1)
    throw WireError("SHA-256 is not there");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : sum) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace lockstep::wire
