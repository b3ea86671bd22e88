// The gradients of layers `E` that all slots share.
#include <algorithm>

#include "engine/nn/moe.h"
#include "kernels/core/fault.h"
#include "scenarios/documents/layout.h"

namespace lockstep {
namespace {

std::int64_t gates(const Scenario::Model& model) {
  return model.mlp.activation == MlpActivation::swiglu ? 2 : 1;
}

// For a planted fault: rows of the experts' buffer that follow the documents at hand when launches
// are captured.
std::int64_t rows_of_first_capture(const Scenario& scenario, const ExpertBuffer& buffer) {
  if (buffer.padded || reads_bytes(scenario.data)) return buffer.rows;
  std::int64_t tokens = 0;
  for (const std::int64_t length :
       microbatch_lengths(scenario, scenario.cuda_graph.warmup_steps, 0))
    tokens += length;
  return std::clamp<std::int64_t>(tokens * scenario.model.moe.top_k, 1, buffer.rows);
}

}  // namespace

template <class T>
MoeScratch<T>::MoeScratch(Device& device, ScratchMaker maker, const Scenario& scenario,
                          Communicator* experts)
    : buffer(scenario), captured_rows(rows_of_first_capture(scenario, buffer)) {
  const Scenario::Model& model = scenario.model;
  const Scenario::Model::Moe& m = model.moe;
  const std::int64_t tokens = scenario.data.pack_length;
  if (has_dropout(model)) dmixed = maker.make<T>(tokens, model.hidden);
  dnorm = maker.make<T>(tokens, model.hidden);
  dy = maker.make<T>(buffer.rows, model.hidden);
  dact = maker.make<T>(buffer.owner_rows, m.hidden);
  dfc1 = maker.make<T>(buffer.owner_rows, gates(model) * m.hidden);
  dbuffer = m.host_sync ? maker.make_lasting<T>(buffer.rows, model.hidden)
                        : maker.make<T>(buffer.rows, model.hidden);
  if (experts != nullptr) {
    exchange.emplace(device, maker, scenario, *experts);
    for (Tensor<T>* const owned : {&owned_y, &owned_dy, &owned_dbuffer})
      *owned = maker.make_lasting<T>(buffer.owner_rows, model.hidden);
  }
  dweights = maker.make<float>(tokens, m.top_k);
  dlogits = maker.make<float>(tokens, m.experts);
  sums = maker.make<float>(1, m.experts + 1);
  if (m.shared_hidden == 0) return;
  shared_dact = maker.make<T>(tokens, m.shared_hidden);
  shared_dfc1 = maker.make<T>(tokens, gates(model) * m.shared_hidden);
  shared_dx = maker.make<T>(tokens, model.hidden);
}

// Each layer and slot has gradients of its own under cuda_graph.shared_memory.
template <class T>
MoeScratch<T> MoeScratch<T>::placed(SavedMaker& maker) const {
  MoeScratch own = *this;
  own.dmixed = maker.place_scratch("dmixed", dmixed);
  own.dnorm = maker.place_scratch("dnorm", dnorm);
  own.dy = maker.place_scratch("dy", dy);
  own.dact = maker.place_scratch("dact", dact);
  own.dfc1 = maker.place_scratch("dfc1", dfc1);
  own.dbuffer = maker.place_scratch("dbuffer", dbuffer);
  own.dweights = maker.place_scratch("dweights", dweights);
  own.dlogits = maker.place_scratch("dlogits", dlogits);
  own.sums = maker.place_scratch("sums", sums);
  own.shared_dact = maker.place_scratch("shared_dact", shared_dact);
  own.shared_dfc1 = maker.place_scratch("shared_dfc1", shared_dfc1);
  own.shared_dx = maker.place_scratch("shared_dx", shared_dx);
  return own;
}

template <class T>
void MoeScratch<T>::initialize(const Stream& stream) const {
  stream.fill(dbuffer.data, 0, static_cast<std::size_t>(dbuffer.size()) * sizeof(T));
}

template struct MoeScratch<float>;
template struct MoeScratch<bf16>;

}  // namespace lockstep
