// What the engine tells a judge: every call at the device door, before it takes effect. The harness implements it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/device/backend.h"

namespace lockstep {

// Where in the step a call belongs. Set by the engine, read by reports.
struct Place {
  int step = -1;
  int microbatch = -1;
  int layer = -1;         // Symbol index in the pattern, -1 outside.
  int rank = 0;           // Data-parallel rank.
  const char* part = "";  // "qkv", "optimizer", ...
  bool backward = false;  // In the backward pass of a microbatch.

  // Of what a backward pass computes again, because it was not saved.
  static constexpr const char* kRecompute = "recompute";
  bool recomputes() const { return std::string_view(part) == kRecompute; }
};

class Ledger;

// Streams, events and graphs are named by small integers, given in order of creation on this device.
class Observer {
 public:
  virtual ~Observer() = default;
  // Ranks that are threads have a host each: from here on the calls are those of this rank's, which begins after all
  // that its starter did. -1: the starter again, who has waited for the end of all.
  virtual void on_host(int rank) {}
  // The host comes to a meeting, or goes on from it: after all have come.
  virtual void on_meet(bool goes_on) {}
  virtual void on_create_stream(int stream, const char* name) {}
  virtual void on_submit(int stream, const Submission&, const Place&) {}
  virtual void on_copy(int stream, void* to, const void* from, std::size_t bytes, CopyKind, const Place&) {}
  virtual void on_fill(int stream, void* to, std::size_t bytes, const Place&) {}
  // The host writes or reads pinned memory itself.
  virtual void on_host_write(const void* memory, std::size_t bytes, const Place&) {}
  virtual void on_host_read(const void* memory, std::size_t bytes, const Place&) {}
  virtual void on_record(int stream, int event, bool external) {}
  virtual void on_wait(int stream, int event, bool external) {}
  virtual void on_begin_capture(int stream) {}
  virtual void on_end_capture(int stream, int graph, const Ledger&) {}
  virtual void on_abort_capture(int stream) {}  // The capture begun there failed or was given up; no graph came of it.
  virtual void on_launch(int stream, int graph, const Ledger&, const Place&) {}
  virtual void on_synchronize_stream(int stream) {}
  virtual void on_synchronize_event(int event) {}
  // A query said so; told after the call, and only then.
  virtual void on_found_finished_stream(int stream) {}
  virtual void on_found_finished_event(int event) {}
  virtual void on_allocate(void* memory, std::size_t bytes, bool pinned) {}
  virtual void on_release(void* memory, bool pinned) {}
};

}  // namespace lockstep
