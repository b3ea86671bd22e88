// A file of a user's data: one regular file, read once.
#pragma once

#include <string>
#include <string_view>

#include "scenarios/documents/md5.h"
#include "scenarios/documents/raw_documents.h"

namespace lockstep {

// What keeps a file from being read.
struct Unreadable {
  DataFault fault;
};

// A file that is read from its begin to its end; its sum is of the bytes that were handed out, so
// nobody can change them between the two. Throws Unreadable.
class InputFile {
 public:
  explicit InputFile(std::string path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  // The bytes that follow; none at the end.
  std::string_view next();
  std::string digest() { return sum_.hex(); }

 private:
  std::string path_, piece_;
  int descriptor_ = -1;
  Md5 sum_;
};

}  // namespace lockstep
