// The addresses of all buffers that captured graphs may hold. The owners of buffers register once;
// graphs compare the list with the one at their capture before each launch.
#pragma once

#include <functional>
#include <vector>

namespace lockstep {

class AddressTable {
 public:
  // The owner outlives the table; it lists its buffers anew at each call of list().
  template <class Owner>
  void add(const Owner& owner) {
    owners_.push_back([&owner](std::vector<const void*>& table) { owner.append_addresses(table); });
  }
  std::vector<const void*> list() const {
    std::vector<const void*> table;
    for (const auto& append : owners_) append(table);
    return table;
  }

 private:
  std::vector<std::function<void(std::vector<const void*>&)>> owners_;
};

}  // namespace lockstep
