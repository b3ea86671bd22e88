// A packed microbatch on the device: the tables that the loader copies, and the metadata that one
// op derives per slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/tensors/stored_tensor.h"
#include "engine/tensors/tensor_pool.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

struct AttentionTables;
struct PackMetadata;

// The constants of a pack, the same for every microbatch.
struct PackShape {
  std::int64_t rows = 0;        // T
  std::int64_t max_seqlen = 0;  // The longest document that a bucket's launches are made for.
  std::int32_t gaps = 0, align = 1;
  std::int32_t chunk = 16;
  Tail tail = Tail::extend_last;
};
PackShape pack_shape(const Scenario& scenario);
// The capacities of the buckets, increasing. Without graphs a scenario may list its buckets in any
// order (L23).
std::vector<std::int64_t> pack_capacities(const Scenario& scenario);

// Lengths and numbers of the documents of one microbatch, for at most `capacity` slots.
struct DocumentTable {
  Tensor<std::int32_t> lengths, numbers;  // [1, capacity]
  Tensor<std::int32_t> count;             // [1, 1]
};

// States at the starts of the chunks, absent if the model has no Mamba-2 layer, and partial column
// sums. The size of the states depends on the capacity, and one stream orders all uses, so all
// slots of a bucket share one scratch.
struct ScanScratch {
  Tensor<float> states, dstates;  // [max_chunks, heads * N * P]
  Tensor<float> sums;             // [ceil(T / 32), widest norm]
  // The partial sums of `cols` columns.
  Tensor<float> partials(std::int64_t cols) const { return tensor(sums.data, sums.rows, cols); }
};
std::int64_t max_chunks(const PackShape& shape, std::int64_t capacity);

// The tables that cuDNN reads instead of the documents, and its workspace, which all packs share:
// one stream runs all attention. Absent with native attention.
struct CudnnTables {
  Tensor<std::int32_t> lengths;  // [1, slots of all classes]
  Tensor<std::int64_t> offsets;  // [3, offsets of all classes]
  Tensor<std::uint8_t> workspace;
  std::int64_t max_seqlen = 0;  // The longest document that the calls have room for.
  explicit operator bool() const { return static_cast<bool>(lengths); }
};

// The metadata of one slot and bucket. It lives until the backward pass of the microbatch in that
// slot is done.
struct PackedBatch {
  PackedBatch(TensorPool& pool, const PackShape& shape, std::int64_t capacity,
              const ScanScratch& scan);
  std::int64_t capacity() const { return cu_seqlens.cols - 1; }
  // The boundaries, by the names of docs/tensors.md.
  std::vector<NamedTensor> names() const;

  Tensor<std::int32_t> cu_seqlens, cu_seqlens_padded;
  Tensor<std::int32_t> row_document, row_position, row_number;
  Tensor<std::int32_t> chunk_document, chunk_start, chunk_rows;
  ScanScratch scan;
  CudnnTables cudnn;
};

PackMetadata build_pack(const PackShape& shape, const DocumentTable& table,
                        const PackedBatch& pack);

// Builds the op that fills the tables of a pack for cuDNN.
AttentionTables build_cudnn_tables(const Scenario::Model::Attention& attention,
                                   const PackedBatch& pack);

// The same pack on the host, as the loader stages it.
struct HostPackedBatch {
  std::vector<std::int32_t> tokens, targets;  // [T]; padding rows have -1.
  // Per slot, the dummy slot of append_dummy_seq included as empty.
  std::vector<std::int32_t> lengths, numbers;
  std::int64_t document_tokens = 0;
  std::int64_t longest() const {
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  }
};
HostPackedBatch lay_out(const PackShape& shape, const Microbatch& microbatch);

}  // namespace lockstep
