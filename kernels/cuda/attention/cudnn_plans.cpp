#include "kernels/cuda/attention/cudnn_plans.h"

#include <stdexcept>

#if LOCKSTEP_HAS_CUDNN
#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/attention/cudnn_library.h"
#endif

namespace lockstep {

#if LOCKSTEP_HAS_CUDNN

namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorPointer = std::shared_ptr<Tensor_attributes>;

// The library's numbers for the operands of a call. Offsets belong to the operand before them.
enum Uid : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kLengthsQ,
  kLengthsKv,
  kOffsets = 100
};

// The settings on which the plan of a library call depends.
struct Call {
  int device = 0;
  bool backward = false, deterministic = true;
  std::int64_t slots = 0, longest = 0, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  friend auto operator<=>(const Call&, const Call&) = default;
  std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  std::string text() const {
    return std::string(backward ? deterministic ? "deterministic backward" : "backward"
                                : "forward") +
           " attention of " + std::to_string(slots) + " documents of " + std::to_string(longest) +
           " rows, " + std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " +
           std::to_string(head_dim);
  }
};

void require_good(fe::error_t error, const Call& call) {
  if (error.is_bad())
    throw std::runtime_error(open_cudnn() + " refuses " + call.text() + ": " + error.get_message());
}

// A call as a graph of the library.
class Plan {
 public:
  // The caller has opened the library, since describing a graph already asks for its version.
  Plan(cudnnHandle_t handle, const Call& call) : call_(call) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    call.backward ? describe_backward() : describe_forward();
    require_good(graph_.build(handle, {fe::HeurMode_t::A}), call);
    require_good(graph_.get_workspace_size(workspace_bytes_), call);
  }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  void run(std::unordered_map<std::int64_t, void*>& operands, void* workspace) const {
    require_good(graph_.execute(cudnn_handle(), operands, workspace), call_);
  }

 private:
  TensorPointer integers(const char* name, Uid uid, std::int64_t count, fe::DataType_t type) {
    return graph_.tensor(Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type));
  }
  // A ragged tensor of [heads, rows, cols] documents, in rows of `width` elements at the given
  // offsets.
  TensorPointer documents(const char* name, Uid uid, std::int64_t heads, std::int64_t cols,
                          std::int64_t width) {
    return graph_.tensor(ragged(name, uid, heads, cols, width));
  }
  Tensor_attributes ragged(const char* name, Uid uid, std::int64_t heads, std::int64_t cols,
                           std::int64_t width) {
    const auto offsets = integers("offsets", static_cast<Uid>(kOffsets + uid), call_.slots + 1,
                                  fe::DataType_t::INT64);
    return Tensor_attributes()
        .set_name(name)
        .set_uid(uid)
        .set_dim({call_.slots, heads, call_.longest, cols})
        .set_stride({call_.longest * width, cols, width, 1})
        .set_ragged_offset(offsets);
  }
  TensorPointer q() { return documents("q", kQ, call_.heads, call_.head_dim, call_.width()); }
  TensorPointer k() { return documents("k", kK, call_.kv_heads, call_.head_dim, call_.width()); }
  TensorPointer v() { return documents("v", kV, call_.kv_heads, call_.head_dim, call_.width()); }
  Tensor_attributes o(const char* name, Uid uid) {
    return ragged(name, uid, call_.heads, call_.head_dim, call_.heads * call_.head_dim);
  }
  Tensor_attributes lse() {
    return ragged("lse", kLse, call_.heads, 1, call_.heads).set_data_type(fe::DataType_t::FLOAT);
  }

  template <class Attributes>
  Attributes causal(Attributes attributes) {
    return attributes
        .set_attn_scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(call_.head_dim))))
        .set_padding_mask(true)
        .set_seq_len_q(integers("rows of q", kLengthsQ, call_.slots, fe::DataType_t::INT32))
        .set_seq_len_kv(integers("rows of kv", kLengthsKv, call_.slots, fe::DataType_t::INT32))
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }
  static void shape_as(const TensorPointer& output, Tensor_attributes like) {
    output->set_output(true)
        .set_uid(like.get_uid())
        .set_dim(like.get_dim())
        .set_stride(like.get_stride())
        .set_ragged_offset(like.get_ragged_offset());
  }

  void describe_forward() {
    const auto attributes =
        causal(fe::graph::SDPA_attributes().set_name("attention")).set_generate_stats(true);
    auto [output, stats] = graph_.sdpa(q(), k(), v(), attributes);
    shape_as(output, o("o", kO));
    shape_as(stats, lse());
    stats->set_data_type(fe::DataType_t::FLOAT);
  }
  void describe_backward() {
    const auto attributes = causal(fe::graph::SDPA_backward_attributes().set_name("attention"))
                                .set_max_total_seq_len_q(call_.rows)
                                .set_max_total_seq_len_kv(call_.rows)
                                .set_deterministic_algorithm(call_.deterministic);
    auto [dq, dk, dv] =
        graph_.sdpa_backward(q(), k(), v(), graph_.tensor(o("o", kO)),
                             graph_.tensor(o("dout", kDout)), graph_.tensor(lse()), attributes);
    shape_as(dq, ragged("dq", kDq, call_.heads, call_.head_dim, call_.width()));
    shape_as(dk, ragged("dk", kDk, call_.kv_heads, call_.head_dim, call_.width()));
    shape_as(dv, ragged("dv", kDv, call_.kv_heads, call_.head_dim, call_.width()));
  }

  Call call_;
  fe::graph::Graph graph_;
  std::int64_t workspace_bytes_ = 0;
};

// The plans of the process. Like the handles they are never freed.
std::map<Call, std::unique_ptr<Plan>>& plans() {
  static auto& all = *new std::map<Call, std::unique_ptr<Plan>>;
  return all;
}

// The classes [first, end) of an op's calls.
struct Range {
  int first = 0, end = 1;
};
Range range(const AttentionClasses&, const CudnnAttentionForward&) { return {}; }
Range range(const AttentionClasses& classes, const CudnnAttentionBackward& op) {
  return op.deterministic ? Range{1, classes.count} : Range{};
}
bool is_deterministic(const CudnnAttentionForward&) { return true; }
bool is_deterministic(const CudnnAttentionBackward& op) { return op.deterministic; }

template <class Op>
Call call_of(const Op& op, const AttentionClass& one) {
  // cuDNN 9.19 has no backward pass for documents of one row at most. The lengths are on the
  // device, so a call with room for two rows takes them.
  constexpr std::int64_t kFewestRows = 2;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw std::runtime_error("cudaGetDevice");
  return {.device = device,
          .backward = std::is_same_v<Op, CudnnAttentionBackward>,
          .deterministic = is_deterministic(op),
          .slots = one.slots,
          .longest = std::max(one.longest, kFewestRows),
          .rows = op.qkv.rows,
          .heads = op.heads,
          .kv_heads = op.kv_heads,
          .head_dim = op.head_dim};
}

template <class Op>
void for_calls(const Op& op,
               const std::function<void(int, const AttentionClass&, const Call&)>& body) {
  const AttentionClasses classes(op.qkv.rows, op.capacity, op.max_seqlen);
  const Range calls = range(classes, op);
  for (int c = calls.first; c < calls.end; ++c) {
    const AttentionClass& one = classes.list[c];
    body(c, one, call_of(op, one));
  }
}

const Plan& planned(const Call& call) {
  const auto found = plans().find(call);
  if (found == plans().end())
    throw std::runtime_error("cuDNN was not asked to plan " + call.text());
  return *found->second;
}

template <class Op>
void plan_op(const Op& op) {
  for_calls(op, [](int, const AttentionClass&, const Call& call) {
    std::unique_ptr<Plan>& plan = plans()[call];
    if (plan == nullptr) plan = std::make_unique<Plan>(cudnn_handle(), call);
  });
}

template <class Op>
std::int64_t largest_workspace(const Op& op) {
  std::int64_t most = 1;
  for_calls(op, [&](int, const AttentionClass&, const Call& call) {
    most = std::max(most, planned(call).workspace_bytes());
  });
  return most;
}

void* writable(const void* data) { return const_cast<void*>(data); }

template <class Op>
void run_op(CUstream_st* stream, const Op& op) {
  const AttentionClasses classes(op.qkv.rows, op.capacity, op.max_seqlen);
  if (fe::detail::set_stream(cudnn_handle(), stream) != CUDNN_STATUS_SUCCESS) {
    throw std::runtime_error("cuDNN takes no stream");
  }
  for_calls(op, [&](int c, const AttentionClass& one, const Call& call) {
    const Plan& plan = planned(call);
    if (!op.workspace || op.workspace.cols < plan.workspace_bytes()) {
      throw std::runtime_error("cuDNN needs " + std::to_string(plan.workspace_bytes()) +
                               " bytes for " + call.text() + ", the op has " +
                               std::to_string(op.workspace.cols));
    }
    std::unordered_map<std::int64_t, void*> operands;
    const auto offsets = [&](Uid uid, int which) {
      operands[kOffsets + uid] =
          writable(op.offsets.data + which * op.offsets.pitch + classes.first_offset(c));
    };
    const auto fused = [&](const auto& x, Uid first) {
      const std::int64_t columns[] = {0, op.heads * op.head_dim,
                                      (op.heads + op.kv_heads) * op.head_dim};
      for (int i = 0; i < 3; ++i) {
        operands[first + i] = writable(x.data + columns[i]);
        offsets(static_cast<Uid>(first + i), 0);
      }
    };
    const auto one_place = [&](const auto& x, Uid uid, int which) {
      operands[uid] = writable(x.data);
      offsets(uid, which);
    };
    fused(op.qkv, kQ);
    one_place(op.o, kO, 1);
    one_place(op.lse, kLse, 2);
    if constexpr (std::is_same_v<Op, CudnnAttentionBackward>) {
      one_place(op.dout, kDout, 1);
      fused(op.dqkv, kDq);
    }
    operands[kLengthsQ] = operands[kLengthsKv] = writable(op.lengths.data + one.first);
    plan.run(operands, op.workspace.data);
  });
}

}  // namespace

std::string cudnn_frontend_version() {
  return std::to_string(CUDNN_FRONTEND_MAJOR_VERSION) + "." +
         std::to_string(CUDNN_FRONTEND_MINOR_VERSION) + "." +
         std::to_string(CUDNN_FRONTEND_PATCH_VERSION);
}

#else

namespace {
template <class Op>
[[noreturn]] void refuse(const Op&) {
  throw std::runtime_error(
      "core_attention: cudnn is not in this build: it found no headers of cudnn-frontend");
}
template <class Op>
void plan_op(const Op& op) {
  refuse(op);
}
template <class Op>
std::int64_t largest_workspace(const Op& op) {
  refuse(op);
}
template <class Op>
void run_op(CUstream_st*, const Op& op) {
  refuse(op);
}
}  // namespace

std::string cudnn_frontend_version() { return ""; }

#endif

void CudnnPlans::plan(const CudnnAttentionForward& op) { plan_op(op); }
void CudnnPlans::plan(const CudnnAttentionBackward& op) { plan_op(op); }
std::int64_t CudnnPlans::workspace_bytes(const CudnnAttentionForward& op) {
  return largest_workspace(op);
}
std::int64_t CudnnPlans::workspace_bytes(const CudnnAttentionBackward& op) {
  return largest_workspace(op);
}
void CudnnPlans::run(CUstream_st* stream, const CudnnAttentionForward& op) { run_op(stream, op); }
void CudnnPlans::run(CUstream_st* stream, const CudnnAttentionBackward& op) { run_op(stream, op); }

}  // namespace lockstep
