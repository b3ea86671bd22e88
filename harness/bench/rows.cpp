#include "harness/bench/rows.h"

#include <utility>

#include "harness/base/errors.h"
#include "harness/base/interrupts.h"

namespace lockstep {
namespace {

void leave_if_interrupted() {
  if (Interrupts::came()) throw Interrupted("interrupted by " + Interrupts::name());
}

}  // namespace

boost::json::value& BenchRows::place(const std::string& at) {
  const std::size_t last = at.rfind('/');
  boost::json::value& parent = last == 0 ? found_ : place(at.substr(0, last));
  if (!parent.is_object()) parent.emplace_object();
  return parent.as_object()[at.substr(last + 1)];
}

void BenchRows::set(const std::string& at, boost::json::value value) {
  {
    const std::lock_guard lock(mutex_);
    place(at) = std::move(value);
  }
  leave_if_interrupted();
}

void BenchRows::begin(const std::string& list) {
  const std::lock_guard lock(mutex_);
  boost::json::value& rows = place(list);
  if (!rows.is_array()) rows.emplace_array();
}

void BenchRows::add(const std::string& list, boost::json::value row) {
  begin(list);
  {
    const std::lock_guard lock(mutex_);
    place(list).as_array().push_back(std::move(row));
  }
  leave_if_interrupted();
}

boost::json::object BenchRows::found() const {
  const std::lock_guard lock(mutex_);
  return found_.as_object();
}

}  // namespace lockstep
