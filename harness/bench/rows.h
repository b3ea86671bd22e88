// The numbers of `lockstep bench` as they come, for --json: what was measured before a signal came
// is there, too.
#pragma once

#include <boost/json.hpp>
#include <mutex>
#include <string>
#include <utility>

namespace lockstep {

class BenchRows {
 public:
  explicit BenchRows(boost::json::object head) : found_(std::move(head)) {}
  // `at` is a JSON pointer, whose objects are made. Both throw Interrupted where a signal came,
  // after the number is there.
  void set(const std::string& at, boost::json::value value);
  void add(const std::string& list, boost::json::value row);
  // A list without rows, so that it is there.
  void begin(const std::string& list);
  boost::json::object found() const;

 private:
  boost::json::value& place(const std::string& at);

  mutable std::mutex mutex_;
  boost::json::value found_;
};

}  // namespace lockstep
