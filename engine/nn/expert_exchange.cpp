#include "engine/nn/expert_exchange.h"

#include <algorithm>
#include <utility>

#include "kernels/core/fault.h"
#include "kernels/moe/exchange.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
template <class T>
ExpertExchange<T>::ExpertExchange(Device& device, ScratchMaker maker, const Scenario& scenario,
                                  Communicator& ranks)
    : communicator_(&ranks),
      lane_(std::make_shared<Lane>(device)),
      buffer_(scenario),
      experts_(scenario.model.moe.experts),
      in_fp8_(multiplies_fp8(scenario)) {
  const std::int64_t rows = this->ranks() * buffer_.places;
  sent_ = maker.make_lasting<T>(rows, scenario.model.hidden);
  received_ = maker.make_lasting<T>(rows, scenario.model.hidden);
}

template <class T>
ExpertPlaces ExpertExchange<T>::make_places(SavedMaker& maker) const {
  const std::int64_t own = experts_ / ranks(), places = ranks() * buffer_.places;
  const std::int64_t lists = in_fp8_ ? own : ranks();
  const auto make = [&](const char* name, std::int64_t rows, std::int64_t cols) {
    return maker.make_unnamed<std::int32_t>(name, rows, cols);
  };
  return {.rows_of_ranks = make("rows_of_ranks", ranks(), experts_),
          .sent = make("rows_sent", 1, places),
          .back = make("rows_back", 1, buffer_.rows),
          .taken = make("rows_taken", 1, buffer_.owner_rows),
          .answered = make("rows_answered", 1, places),
          .own_start = make("own_start", 1, own),
          .own_rows = make("own_rows", 1, own),
          .segment_start = make("segment_start", lists, experts_ / lists),
          .segment_rows = make("segment_rows", lists, experts_ / lists),
          .used_places = buffer_.places,
          .used_rows = buffer_.owner_rows,
          .asked_places = buffer_.places};
}

template <class T>
void ExpertExchange<T>::gather_rows(const PassContext& pass, int layer, Tensor<std::int32_t> rows,
                                    const ExpertPlaces& places) const {
  fork(pass);
  communicator_->all_gather(lane_->stream, {"expert rows", layer}, places.rows_of_ranks.data,
                            rows.data, range_of(rows).bytes);
  join(pass);
}

template <class T>
UsedRows ExpertExchange<T>::used_rows(const std::int32_t* rows_of_ranks) const {
  const std::int64_t own = experts_ / ranks();
  UsedRows used;
  for (std::int64_t source = 0; source < ranks(); ++source) {
    for (std::int64_t owner = 0; owner < ranks(); ++owner) {
      std::int64_t between = 0;
      for (std::int64_t local = 0; local < own; ++local)
        between += rows_of_ranks[source * experts_ + owner * own + local];
      used.places = std::max(used.places, between);
      if (source == communicator_->rank()) used.of_source += between;
      if (owner == communicator_->rank()) used.of_owner += between;
    }
  }
  return used;
}

template <class T>
void ExpertExchange<T>::find_places(const PassContext& pass, Tensor<std::int32_t> start,
                                    const std::optional<UsedRows>& used,
                                    ExpertPlaces& places) const {
  if (used) {
    const std::int64_t asked = std::clamp<std::int64_t>(used->places, 1, buffer_.places);
    const std::int64_t before = std::exchange(places.asked_places, asked);
    places.used_places = faulty("exchange-of-the-sizes-before", asked, before);
    places.used_rows = std::clamp<std::int64_t>(used->of_owner, 1, buffer_.owner_rows);
    places.is_empty = used->of_source + used->of_owner == 0;
  }
  const std::int64_t exchanged = ranks() * places.used_places;
  pass.stream.submit(ExchangeLayout{.rows_of_ranks = places.rows_of_ranks,
                                    .start = start,
                                    .sent = places.sent.columns(0, exchanged),
                                    .back = places.back,
                                    .taken = places.taken.columns(0, places.used_rows),
                                    .answered = places.answered.columns(0, exchanged),
                                    .own_start = places.own_start,
                                    .own_rows = places.own_rows,
                                    .segment_start = places.segment_start,
                                    .segment_rows = places.segment_rows,
                                    .rank = static_cast<std::int32_t>(communicator_->rank()),
                                    .capacity = buffer_.padded ? buffer_.capacity : 0,
                                    .by_expert = in_fp8_});
}

template <class T>
void ExpertExchange<T>::to_owners(const PassContext& pass, const char* purpose, int layer,
                                  const ExpertPlaces& places, Tensor<T> from, Tensor<T> to) const {
  begin(pass, purpose, layer, places, from, places.sent);
  end(pass, places, places.taken, to);
}
template <class T>
void ExpertExchange<T>::to_sources(const PassContext& pass, const char* purpose, int layer,
                                   const ExpertPlaces& places, Tensor<T> from, Tensor<T> to) const {
  begin_to_sources(pass, purpose, layer, places, from);
  end_to_sources(pass, places, to);
}
template <class T>
void ExpertExchange<T>::begin_to_sources(const PassContext& pass, const char* purpose, int layer,
                                         const ExpertPlaces& places, Tensor<T> from) const {
  begin(pass, purpose, layer, places, from, places.answered);
}
template <class T>
void ExpertExchange<T>::end_to_sources(const PassContext& pass, const ExpertPlaces& places,
                                       Tensor<T> to) const {
  end(pass, places, places.back, to);
}

template <class T>
void ExpertExchange<T>::begin(const PassContext& pass, const char* purpose, int layer,
                              const ExpertPlaces& places, Tensor<T> from,
                              Tensor<std::int32_t> leaves) const {
  const std::int64_t exchanged = ranks() * places.used_places;
  move(pass, from, leaves.columns(0, exchanged), first_rows(sent_, exchanged));
  const bool captured = pass.stream.device().recording() >= 0;
  const std::int64_t baked = captured ? (places.used_places + 1) / 2 : places.used_places;
  const std::int64_t moved = faulty("captured-exchange-of-fewer-rows", places.used_places, baked);
  const auto bytes = static_cast<std::size_t>(moved * sent_.cols) * sizeof(T);
  const bool joins = faulty("exchange-skipped-without-rows", true, !places.is_empty);
  fork(pass);
  if (joins)
    communicator_->all_to_all(lane_->stream, {purpose, layer}, received_.data, sent_.data, bytes);
  lane_->stream.record(lane_->arrived);
}

template <class T>
void ExpertExchange<T>::end(const PassContext& pass, const ExpertPlaces& places,
                            Tensor<std::int32_t> arrives, Tensor<T> to) const {
  const bool waits = faulty("rows-read-before-they-arrive", true, false);
  if (waits) pass.stream.wait(lane_->arrived);
  move(pass, first_rows(received_, ranks() * places.used_places), arrives.columns(0, to.rows), to);
}

template <class T>
void ExpertExchange<T>::fork(const PassContext& pass) const {
  pass.stream.record(lane_->written);
  const bool waits = faulty("rows-sent-before-they-are-written", true, false);
  if (waits) lane_->stream.wait(lane_->written);
}

template <class T>
void ExpertExchange<T>::join(const PassContext& pass) const {
  lane_->stream.record(lane_->arrived);
  pass.stream.wait(lane_->arrived);
}

template <class T>
void ExpertExchange<T>::move(const PassContext& pass, Tensor<T> from, Tensor<std::int32_t> place,
                             Tensor<T> to) const {
  pass.stream.submit(MoveRows<T>{.from = from, .place = place, .to = to});
}

template class ExpertExchange<float>;
template class ExpertExchange<bf16>;

}  // namespace lockstep
