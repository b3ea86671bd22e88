// The store of some of the ranks of another store: its rounds are letters between them.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "engine/rendezvous/store.h"

namespace lockstep {

class GroupStore final : public Store {
 public:
  // `ranks` of the store, ascending, this one among them. Ranks that have several groups in common
  // make them in the same order, and as many others before. The store outlives the group.
  GroupStore(Store& all, const std::vector<int>& ranks);

  std::span<const std::byte> posted_by(int peer) const override;

 private:
  int number_of(int rank) const override;
  std::byte* outbox() override { return outbox_.data(); }
  void put(const CollectiveCall& call, std::size_t filled) override;
  void take() override;
  Progress progress_of(int peer, Mark mark) const override;
  void wait_for_change(int peer, Mark mark, std::uint32_t seen) override;
  CollectiveCall call_of(int peer) const override;
  Last last_of(int peer) const override;
  bool put_part(int peer, std::span<const std::byte> part) override;
  bool take_part(int peer, std::vector<std::byte>& to) override;
  void wait_for_part(int peer) override;
  const Letter& round_of(int peer) const;
  void fetch(int peer) const;

  struct Posted {
    std::deque<Letter> rounds = {};  // This rank has not taken them.
    std::uint32_t count = 0;
    CollectiveCall last = {};
  };
  Store& all_;
  const std::vector<int> ranks_;
  const std::uint8_t number_;
  std::vector<std::byte> outbox_;
  mutable std::vector<Posted> posted_;
};

}  // namespace lockstep
