// Tells two observers, one after the other. If the first throws, the second is not told.
#pragma once

#include "engine/device/ledger.h"

namespace lockstep {

class Tee : public Observer {
 public:
  Tee(Observer& first, Observer& second) : first_(first), second_(second) {}

  void on_host(int rank) override {
    both([&](Observer& o) { o.on_host(rank); });
  }
  void on_meet(bool goes_on) override {
    both([&](Observer& o) { o.on_meet(goes_on); });
  }
  void on_create_stream(int stream, const char* name) override {
    both([&](Observer& o) { o.on_create_stream(stream, name); });
  }
  void on_submit(int stream, const Submission& op, const Place& place) override {
    both([&](Observer& o) { o.on_submit(stream, op, place); });
  }
  void on_copy(int stream, void* to, const void* from, std::size_t bytes, CopyKind kind, const Place& place) override {
    both([&](Observer& o) { o.on_copy(stream, to, from, bytes, kind, place); });
  }
  void on_fill(int stream, void* to, std::size_t bytes, const Place& place) override {
    both([&](Observer& o) { o.on_fill(stream, to, bytes, place); });
  }
  void on_host_write(const void* memory, std::size_t bytes, const Place& place) override {
    both([&](Observer& o) { o.on_host_write(memory, bytes, place); });
  }
  void on_host_read(const void* memory, std::size_t bytes, const Place& place) override {
    both([&](Observer& o) { o.on_host_read(memory, bytes, place); });
  }
  void on_record(int stream, int event, bool external) override {
    both([&](Observer& o) { o.on_record(stream, event, external); });
  }
  void on_wait(int stream, int event, bool external) override {
    both([&](Observer& o) { o.on_wait(stream, event, external); });
  }
  void on_begin_capture(int stream) override {
    both([&](Observer& o) { o.on_begin_capture(stream); });
  }
  void on_end_capture(int stream, int graph, const Ledger& ledger) override {
    both([&](Observer& o) { o.on_end_capture(stream, graph, ledger); });
  }
  void on_abort_capture(int stream) override {
    both([&](Observer& o) { o.on_abort_capture(stream); });
  }
  void on_launch(int stream, int graph, const Ledger& ledger, const Place& place) override {
    both([&](Observer& o) { o.on_launch(stream, graph, ledger, place); });
  }
  void on_synchronize_stream(int stream) override {
    both([&](Observer& o) { o.on_synchronize_stream(stream); });
  }
  void on_synchronize_event(int event) override {
    both([&](Observer& o) { o.on_synchronize_event(event); });
  }
  void on_found_finished_stream(int stream) override {
    both([&](Observer& o) { o.on_found_finished_stream(stream); });
  }
  void on_found_finished_event(int event) override {
    both([&](Observer& o) { o.on_found_finished_event(event); });
  }
  void on_allocate(void* memory, std::size_t bytes, bool pinned) override {
    both([&](Observer& o) { o.on_allocate(memory, bytes, pinned); });
  }
  void on_release(void* memory, bool pinned) override {
    both([&](Observer& o) { o.on_release(memory, pinned); });
  }

 private:
  template <class Call>
  void both(Call call) {
    call(first_);
    call(second_);
  }
  Observer& first_;
  Observer& second_;
};

}  // namespace lockstep
