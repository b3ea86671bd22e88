// Type information of each op for streams, graphs and observers, made from its struct. The one file
// that includes every op.
#include <array>
#include <boost/pfr.hpp>

#include "kernels/core/field_name.h"
#include "kernels/submission/ops.h"
#include "kernels/submission/submission.h"

namespace lockstep {

namespace detail {

// The offsets of a struct's scalars of type float, those of its members included.
template <class T>
void collect_floats(const T& value, const std::byte* base, std::vector<std::size_t>& list) {
  boost::pfr::for_each_field(value, [&]<class Field>(const Field& field) {
    constexpr bool kOperand = requires { Field::access; };
    if constexpr (std::is_same_v<Field, float>) {
      list.push_back(reinterpret_cast<const std::byte*>(&field) - base);
    } else if constexpr (std::is_class_v<Field> && std::is_aggregate_v<Field> && !kOperand) {
      collect_floats(field, base, list);
    }
  });
}

template <class Field>
inline constexpr bool kIsOperand = requires(const Field& field) {
  Field::access;
  field.pitch;
};

template <class Op>
inline constexpr std::size_t kOperandsOf = []<std::size_t... field>(std::index_sequence<field...>) {
  return (std::size_t{0} + ... + kIsOperand<boost::pfr::tuple_element_t<field, Op>>);
}
(std::make_index_sequence<boost::pfr::tuple_size_v<Op>>());

}  // namespace detail

template <class Op>
const OpType& op_type() {
  static const OpType type{
      .name = Op::kName,
      .id = AllOps::id_of<Op>(),
      .size = sizeof(Op),
      .operands =
          [](const void* op, std::vector<OperandBytes>& list) {
            list.clear();
            list.reserve(detail::kOperandsOf<Op>);
            boost::pfr::for_each_field(
                *static_cast<const Op*>(op), [&]<class Field>(const Field& field, auto index) {
                  if constexpr (detail::kIsOperand<Field>) {
                    constexpr std::int64_t size = sizeof(*field.data);
                    if (field) {
                      list.push_back({Field::access,
                                      const_cast<void*>(static_cast<const void*>(field.data)),
                                      field.rows, field.cols * size, field.pitch * size,
                                      field_name<Op, index>()});
                    }
                  }
                });
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
              const std::size_t first = reinterpret_cast<const std::byte*>(&field) -
                                        reinterpret_cast<const std::byte*>(&op);
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

namespace {

template <class... Ops>
constexpr auto instances(OpList<Ops...>) {
  return std::array{&op_type<Ops>...};
}
// `used`: nothing reads it, but it is what makes the compiler emit op_type() of each op in the
// list.
[[gnu::used]] constexpr auto kInstances = instances(AllOps{});

}  // namespace

}  // namespace lockstep
