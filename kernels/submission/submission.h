// An op with its type erased: what a stream queues, a graph holds and an observer sees. Host code only.
#pragma once

#include <boost/pfr.hpp>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "kernels/core/field_name.h"
#include "kernels/submission/ops.h"

namespace lockstep {

// The bytes an operand covers: `rows` pieces of `row_bytes`, `pitch_bytes` apart.
struct OperandBytes {
  Access access;
  void* base;
  std::int64_t rows;
  std::int64_t row_bytes;
  std::int64_t pitch_bytes;
  const char* name = "";  // Of the member of the op's struct.
};

namespace detail {

// Where a struct's scalars of type float lie, those inside of its members included.
template <class T>
void collect_floats(const T& value, const std::byte* base, std::vector<std::size_t>& list) {
  boost::pfr::for_each_field(value, [&]<class Field>(const Field& field) {
    constexpr bool kOperand = requires { Field::access; };
    if constexpr (std::is_same_v<Field, float>) {
      list.push_back(static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&field) - base));
    } else if constexpr (std::is_class_v<Field> && std::is_aggregate_v<Field> && !kOperand) {
      collect_floats(field, base, list);
    }
  });
}

}  // namespace detail

struct OpType {
  const char* name;
  int id;  // Place in AllOps.
  std::size_t size;
  std::vector<OperandBytes> (*operands)(const void* op);  // Present operands, in the order of the struct.
  bool (*equal)(const void* a, const void* b);            // All fields: addresses, shapes and scalars.
  const char* (*field_at)(std::size_t byte);              // The name of the field that holds this byte of the struct.
  std::vector<std::size_t> (*floats)();                   // Where the struct has scalars of type float.
  void (*run_on_host)(const void* op);
};

template <class Op>
const OpType& op_type() {
  static const OpType type{
      .name = Op::kName,
      .id = AllOps::id_of<Op>(),
      .size = sizeof(Op),
      .operands =
          [](const void* op) {
            std::vector<OperandBytes> list;
            boost::pfr::for_each_field(*static_cast<const Op*>(op), [&]<class Field>(const Field& field, auto index) {
              if constexpr (requires {
                              Field::access;
                              field.pitch;
                            }) {
                constexpr std::int64_t size = sizeof(*field.data);
                if (field) {
                  list.push_back({Field::access, const_cast<void*>(static_cast<const void*>(field.data)), field.rows,
                                  field.cols * size, field.pitch * size, field_name<Op, index>()});
                }
              }
            });
            return list;
          },
      .equal =
          [](const void* a, const void* b) {
            return boost::pfr::eq_fields(*static_cast<const Op*>(a), *static_cast<const Op*>(b));
          },
      .field_at =
          [](std::size_t byte) {
            const char* found = "";
            const Op op{};
            boost::pfr::for_each_field(op, [&]<class Field>(const Field& field, auto index) {
              const auto first = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&field) -
                                                          reinterpret_cast<const std::byte*>(&op));
              if (byte >= first && byte < first + sizeof(Field)) found = field_name<Op, index>();
            });
            return found;
          },
      .floats =
          [] {
            std::vector<std::size_t> list;
            const Op op{};
            detail::collect_floats(op, reinterpret_cast<const std::byte*>(&op), list);
            return list;
          },
      .run_on_host = [](const void* op) { run(HostQueue{}, *static_cast<const Op*>(op)); }};
  static_assert(AllOps::id_of<Op>() >= 0, "the op is missing in kernels/submission/ops.h");
  return type;
}

class Submission {
 public:
  template <class Op>
  requires(AllOps::id_of<Op>() >= 0) explicit Submission(const Op& op) : type_(&op_type<Op>()) {
    static_assert(sizeof(Op) <= kCapacity && std::is_trivially_copyable_v<Op>);
    new (storage_) Op(op);
  }
  const OpType& type() const { return *type_; }
  const void* op() const { return storage_; }
  std::vector<OperandBytes> operands() const { return type_->operands(storage_); }
  void run_on_host() const { type_->run_on_host(storage_); }
  friend bool operator==(const Submission& a, const Submission& b) {
    return a.type_ == b.type_ && a.type_->equal(a.storage_, b.storage_);
  }

 private:
  static constexpr std::size_t kCapacity = 768;
  const OpType* type_;
  alignas(16) std::byte storage_[kCapacity];
};

}  // namespace lockstep
