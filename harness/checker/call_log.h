// Every call of a run at the device door, to be told to other observers later: a judge can go over the same run again
// with one edge less.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/device/ledger.h"

namespace lockstep {

class CallLog : public Observer {
 public:
  explicit CallLog(Observer& next) : next_(next) {}
  void tell(Observer& observer) const;

  void on_host(int rank) override;
  void on_meet(bool goes_on) override;
  void on_create_stream(int stream, const char* name) override;
  void on_submit(int stream, const Submission& op, const Place& place) override;
  void on_copy(int stream, void* to, const void* from, std::size_t bytes, CopyKind kind, const Place& place) override;
  void on_fill(int stream, void* to, std::size_t bytes, const Place& place) override;
  void on_host_write(const void* memory, std::size_t bytes, const Place& place) override;
  void on_host_read(const void* memory, std::size_t bytes, const Place& place) override;
  void on_record(int stream, int event, bool external) override;
  void on_wait(int stream, int event, bool external) override;
  void on_begin_capture(int stream) override;
  void on_end_capture(int stream, int graph, const Ledger& ledger) override;
  void on_abort_capture(int stream) override;
  void on_launch(int stream, int graph, const Ledger& ledger, const Place& place) override;
  void on_synchronize_stream(int stream) override;
  void on_synchronize_event(int event) override;
  void on_found_finished_stream(int stream) override;
  void on_found_finished_event(int event) override;
  void on_allocate(void* memory, std::size_t bytes, bool pinned) override;
  void on_release(void* memory, bool pinned) override;

 private:
  using Call = std::function<void(Observer&)>;
  void note(Call call);

  Observer& next_;
  std::vector<Call> calls_;
  std::map<int, std::shared_ptr<const Ledger>> ledgers_;  // By graph.
};

}  // namespace lockstep
