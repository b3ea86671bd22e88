// An op with its type erased: what a stream queues, a graph holds and an observer sees. Host code
// only.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "kernels/core/operand.h"

namespace lockstep {

// The bytes an operand covers: `rows` pieces of `row_bytes`, `pitch_bytes` apart.
struct OperandBytes {
  Access access;
  void* base;
  std::int64_t rows;
  std::int64_t row_bytes;
  std::int64_t pitch_bytes;
  const char* name = "";  // For the member of the op's struct.
};

struct OpType {
  const char* name;
  int id;  // Place in AllOps.
  std::size_t size;
  // Replaces the list by the present operands, in the order of the struct.
  void (*operands)(const void* op, std::vector<OperandBytes>& list);
  bool (*equal)(const void* a, const void* b);  // All fields: addresses, shapes and scalars.
  const char* (*field_at)(
      std::size_t byte);  // The name of the field that holds this byte of the struct.
  std::vector<std::size_t> (*floats)();  // Where the struct has scalars of type float.
  void (*run_on_host)(const void* op);
};

// Defined in op_types.cpp for every op of kernels/submission/ops.h; an op that is missing there is
// a link error. Only that file includes all ops, so that a change to one op's header compiles what
// uses this op and nothing else.
template <class Op>
const OpType& op_type();

class Submission {
 public:
  template <class Op>
  requires requires { Op::kName; }
  explicit Submission(const Op& op) : type_(&op_type<Op>()) {
    static_assert(sizeof(Op) <= kCapacity && std::is_trivially_copyable_v<Op>);
    new (storage_) Op(op);
  }
  const OpType& type() const { return *type_; }
  const void* op() const { return storage_; }
  // The op if it is an `Op`, else null.
  template <class Op>
  const Op* as() const {
    return type_ == &op_type<Op>() ? static_cast<const Op*>(op()) : nullptr;
  }
  std::vector<OperandBytes> operands() const {
    std::vector<OperandBytes> list;
    operands(list);
    return list;
  }
  // Replaces the list, which allocates nothing if it has held as many.
  void operands(std::vector<OperandBytes>& list) const { type_->operands(storage_, list); }
  void run_on_host() const { type_->run_on_host(storage_); }
  friend bool operator==(const Submission& a, const Submission& b) {
    return a.type_ == b.type_ && a.type_->equal(a.storage_, b.storage_);
  }

 private:
  static constexpr std::size_t kCapacity = 784;
  const OpType* type_;
  alignas(16) std::byte storage_[kCapacity];
};

}  // namespace lockstep
