#include "harness/checker/call_log.h"

namespace lockstep {

void CallLog::tell(Observer& observer) const {
  for (const Call& call : calls_) call(observer);
}

void CallLog::note(Call call) {
  calls_.push_back(std::move(call));
  calls_.back()(next_);
}

void CallLog::on_host(int rank) {
  note([=](Observer& o) { o.on_host(rank); });
}
void CallLog::on_meet(bool goes_on) {
  note([=](Observer& o) { o.on_meet(goes_on); });
}
void CallLog::on_create_stream(int stream, const char* name) {
  note([=, name = std::string(name)](Observer& o) { o.on_create_stream(stream, name.c_str()); });
}
void CallLog::on_submit(int stream, const Submission& op, const Place& place) {
  note([=](Observer& o) { o.on_submit(stream, op, place); });
}
void CallLog::on_copy(int stream, void* to, const void* from, std::size_t bytes, CopyKind kind, const Place& place) {
  note([=](Observer& o) { o.on_copy(stream, to, from, bytes, kind, place); });
}
void CallLog::on_fill(int stream, void* to, std::size_t bytes, const Place& place) {
  note([=](Observer& o) { o.on_fill(stream, to, bytes, place); });
}
void CallLog::on_host_write(const void* memory, std::size_t bytes, const Place& place) {
  note([=](Observer& o) { o.on_host_write(memory, bytes, place); });
}
void CallLog::on_host_read(const void* memory, std::size_t bytes, const Place& place) {
  note([=](Observer& o) { o.on_host_read(memory, bytes, place); });
}
void CallLog::on_record(int stream, int event, bool external) {
  note([=](Observer& o) { o.on_record(stream, event, external); });
}
void CallLog::on_wait(int stream, int event, bool external) {
  note([=](Observer& o) { o.on_wait(stream, event, external); });
}
void CallLog::on_begin_capture(int stream) {
  note([=](Observer& o) { o.on_begin_capture(stream); });
}
void CallLog::on_end_capture(int stream, int graph, const Ledger& ledger) {
  const auto kept = std::make_shared<const Ledger>(ledger);
  ledgers_[graph] = kept;
  note([=](Observer& o) { o.on_end_capture(stream, graph, *kept); });
}
void CallLog::on_abort_capture(int stream) {
  note([=](Observer& o) { o.on_abort_capture(stream); });
}
void CallLog::on_launch(int stream, int graph, const Ledger&, const Place& place) {
  const auto kept = ledgers_.at(graph);
  note([=](Observer& o) { o.on_launch(stream, graph, *kept, place); });
}
void CallLog::on_synchronize_stream(int stream) {
  note([=](Observer& o) { o.on_synchronize_stream(stream); });
}
void CallLog::on_synchronize_event(int event) {
  note([=](Observer& o) { o.on_synchronize_event(event); });
}
void CallLog::on_found_finished_stream(int stream) {
  note([=](Observer& o) { o.on_found_finished_stream(stream); });
}
void CallLog::on_found_finished_event(int event) {
  note([=](Observer& o) { o.on_found_finished_event(event); });
}
void CallLog::on_allocate(void* memory, std::size_t bytes, bool pinned) {
  note([=](Observer& o) { o.on_allocate(memory, bytes, pinned); });
}
void CallLog::on_release(void* memory, bool pinned) {
  note([=](Observer& o) { o.on_release(memory, pinned); });
}

}  // namespace lockstep
