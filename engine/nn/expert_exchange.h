// The rows of an `E` layer on their way to the ranks that have their experts, and back
// (parallel.expert): docs/scenario-reference.md, "Experts over ranks". All ranks of a group make
// the same calls, those without rows too. Calls have a stream of their own, for which compute waits
// where it reads what came.
#pragma once

#include <memory>
#include <optional>

#include "engine/comm/communicator.h"
#include "engine/nn/layer.h"
#include "engine/plan/expert_buffer.h"

namespace lockstep {

template <class T>
Tensor<T> first_rows(Tensor<T> x, std::int64_t rows) {
  return {x.data, rows, x.cols, x.pitch};
}

// The operands of ExchangeLayout, which say where the rows of a slot's microbatch lie.
struct ExpertPlaces {
  Tensor<std::int32_t> rows_of_ranks;                // [X, E]
  Tensor<std::int32_t> sent, back, taken, answered;  // [1, X * S], [1, R], [1, Q], [1, X * S]
  Tensor<std::int32_t> own_start, own_rows;          // [1, E / X]
  Tensor<std::int32_t> segment_start, segment_rows;  // [X, E / X]; in fp8 [E / X, X].
  std::int64_t used_places = 0, used_rows = 0;       // S and Q, at least one.
  bool is_empty = false;  // The host knows that this rank sends no row and its experts have none.
  std::int64_t asked_places = 0;  // For a planted fault: what the last microbatch needed.
};

// How many rows a microbatch fills, with host_sync.
struct UsedRows {
  std::int64_t of_source = 0;  // Rows of this rank, of all experts.
  std::int64_t of_owner = 0;   // Rows that its experts have, of all ranks.
  std::int64_t places = 0;     // The most that one rank sends to another.
};

template <class T>
class ExpertExchange {
 public:
  // `ranks`: those that share the experts of each layer.
  ExpertExchange(Device& device, ScratchMaker maker, const Scenario& scenario, Communicator& ranks);

  ExpertPlaces make_places(SavedMaker& maker) const;
  // Every rank learns how many rows of each expert each of the others sends.
  void gather_rows(const PassContext& pass, int layer, Tensor<std::int32_t> rows,
                   const ExpertPlaces& places) const;
  // `rows_of_ranks` as the host has read it, [X, E].
  UsedRows used_rows(const std::int32_t* rows_of_ranks) const;
  // `used`: absent without host_sync, and all rows are taken to be in use.
  void find_places(const PassContext& pass, Tensor<std::int32_t> start,
                   const std::optional<UsedRows>& used, ExpertPlaces& places) const;
  // From the buffer of a source to that of the owner, and the other way.
  void to_owners(const PassContext& pass, const char* purpose, int layer,
                 const ExpertPlaces& places, Tensor<T> from, Tensor<T> to) const;
  void to_sources(const PassContext& pass, const char* purpose, int layer,
                  const ExpertPlaces& places, Tensor<T> from, Tensor<T> to) const;
  // The same in two halves, between which compute works on. `from` may be written after the first.
  void begin_to_sources(const PassContext& pass, const char* purpose, int layer,
                        const ExpertPlaces& places, Tensor<T> from) const;
  void end_to_sources(const PassContext& pass, const ExpertPlaces& places, Tensor<T> to) const;

 private:
  struct Lane {
    explicit Lane(Device& device)
        : stream(device, "expert rows"),
          written(device, "rows written to be exchanged"),
          arrived(device, "rows arrived") {}
    Stream stream;
    Event written, arrived;
  };
  std::int64_t ranks() const { return communicator_->size(); }
  void move(const PassContext& pass, Tensor<T> from, Tensor<std::int32_t> place,
            Tensor<T> to) const;
  void begin(const PassContext& pass, const char* purpose, int layer, const ExpertPlaces& places,
             Tensor<T> from, Tensor<std::int32_t> leaves) const;
  void end(const PassContext& pass, const ExpertPlaces& places, Tensor<std::int32_t> arrives,
           Tensor<T> to) const;
  // The lane comes behind what compute has written, and compute behind what the lane has received.
  void fork(const PassContext& pass) const;
  void join(const PassContext& pass) const;

  Communicator* communicator_;
  std::shared_ptr<Lane> lane_;
  ExpertBuffer buffer_;
  std::int64_t experts_;
  bool in_fp8_;  // Each segment has an exponent: they are listed as they lie in the owner's buffer.
  Tensor<T> sent_, received_;  // [X * S, d]
};

}  // namespace lockstep
