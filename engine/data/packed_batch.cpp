#include "engine/data/packed_batch.h"

#include <algorithm>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/ops/cudnn_attention.h"
#include "kernels/ops/pack_metadata.h"
#include "scenarios/documents/layout.h"
#include "scenarios/rules/legality.h"

namespace lockstep {

PackShape pack_shape(const Scenario& scenario) {
  return {
      .rows = scenario.data.pack_length,
      .max_seqlen = with_graphs(scenario) ? longest_captured(scenario) : scenario.data.pack_length,
      .gaps = static_cast<std::int32_t>(scenario.data.gaps),
      .align = static_cast<std::int32_t>(scenario.data.align),
      .chunk = static_cast<std::int32_t>(scenario.model.mamba.chunk),
      .tail = scenario.data.tail};
}

std::vector<std::int64_t> pack_capacities(const Scenario& scenario) {
  std::vector<std::int64_t> capacities = scenario.cuda_graph.max_packed_seqs;
  std::sort(capacities.begin(), capacities.end());
  return capacities;
}

std::int64_t max_chunks(const PackShape& shape, std::int64_t capacity) {
  return (shape.rows + shape.chunk - 1) / shape.chunk + capacity;
}

PackedBatch::PackedBatch(TensorPool& pool, const PackShape& shape, std::int64_t capacity,
                         const ScanScratch& scratch)
    : scan(scratch) {
  for (Tensor<std::int32_t>* member : {&cu_seqlens, &cu_seqlens_padded}) {
    *member = pool.make<std::int32_t>(1, capacity + 1);
  }
  for (Tensor<std::int32_t>* member : {&row_document, &row_position, &row_number}) {
    *member = pool.make<std::int32_t>(1, shape.rows);
  }
  for (Tensor<std::int32_t>* member : {&chunk_document, &chunk_start, &chunk_rows}) {
    *member = pool.make<std::int32_t>(1, max_chunks(shape, capacity));
  }
}

std::vector<NamedTensor> PackedBatch::names() const {
  const auto named = [](const char* name, Tensor<std::int32_t> tensor) {
    return NamedTensor{.name = name,
                       .op = PackMetadata::kName,
                       .tensor = tensor,
                       .rows = NamedTensor::Rows::slots};
  };
  return {named("pack.cu_seqlens", cu_seqlens), named("pack.cu_seqlens_padded", cu_seqlens_padded)};
}

PackMetadata build_pack(const PackShape& shape, const DocumentTable& table,
                        const PackedBatch& pack) {
  const std::int64_t capacity = pack.capacity();
  return {.lengths = table.lengths.columns(0, capacity),
          .numbers = table.numbers.columns(0, capacity),
          .count = table.count,
          .cu_seqlens = pack.cu_seqlens,
          .cu_seqlens_padded = pack.cu_seqlens_padded,
          .row_document = pack.row_document,
          .row_position = pack.row_position,
          .row_number = pack.row_number,
          .chunk_document = pack.chunk_document,
          .chunk_start = pack.chunk_start,
          .chunk_rows = pack.chunk_rows,
          .gaps = shape.gaps,
          .align = shape.align,
          .chunk = shape.chunk,
          .extend_last = shape.tail == Tail::extend_last};
}

AttentionTables build_cudnn_tables(const Scenario::Model::Attention& attention,
                                   const PackedBatch& pack) {
  return {.cu_seqlens = pack.cu_seqlens,
          .cu_seqlens_padded = pack.cu_seqlens_padded,
          .lengths = pack.cudnn.lengths,
          .offsets = pack.cudnn.offsets,
          .rows = pack.row_document.cols,
          .max_seqlen = pack.cudnn.max_seqlen,
          .heads = static_cast<std::int32_t>(attention.heads),
          .kv_heads = static_cast<std::int32_t>(attention.kv_heads),
          .head_dim = static_cast<std::int32_t>(attention.head_dim)};
}

static void put_tokens(const Document& document, std::int32_t* to) {
  const std::int32_t bits = faulty("tokens-in-16-bits", -1, 0xffff);
  std::ranges::transform(document.tokens, to, [bits](std::int32_t id) { return id & bits; });
}

HostPackedBatch lay_out(const PackShape& shape, const Microbatch& microbatch) {
  HostPackedBatch pack;
  pack.tokens.assign(shape.rows, -1);
  pack.targets.assign(shape.rows, faulty("padding-row-has-a-target", -1, 0));
  std::int64_t start = 0;
  for (const Document& document : microbatch.documents) {
    const std::int64_t length = std::ssize(document.tokens);
    require(start + length <= shape.rows, "the documents of a microbatch fit its pack");
    put_tokens(document, pack.tokens.data() + start);
    std::copy(document.targets.begin(), document.targets.end(), pack.targets.begin() + start);
    if (start > 0 && length > 0) {
      std::int32_t& before = at(pack.targets, start - 1);
      before = faulty("target-of-the-next-document", before, document.tokens[0]);
    }
    pack.lengths.push_back(static_cast<std::int32_t>(length));
    pack.numbers.push_back(document.number);
    pack.document_tokens += length;
    start += slot_rows(length, shape.gaps, shape.align);
  }
  // The tail is a slot of its own: it has no tokens, only an entry in the table.
  if (shape.tail == Tail::append_dummy_seq && start < shape.rows) {
    pack.lengths.push_back(0);
    pack.numbers.push_back(0);
  }
  return pack;
}

}  // namespace lockstep
