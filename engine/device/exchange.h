// Collectives between the ranks of a run, as streams and ledgers hold them.
#pragma once

#include <cstdint>

namespace lockstep {

class BackendCommunicator;

// `launch`: a graph that holds calls is put on a stream.
enum class CollectiveKind : std::uint8_t {
  barrier,
  all_gather,
  all_to_all,
  reduce_scatter,
  all_reduce,
  launch,
  send,  // To one rank, which makes a `receive`. Ledgers hold both as a send.
  receive
};
const char* to_text(CollectiveKind kind);

// Names a call for ledgers and reports: what the ranks must agree on, beside kind and bytes.
struct CollectiveName {
  const char* purpose = "";  // "gather", "reduce", "norm", "losses", ...
  int unit = -1;             // FSDP unit or bucket, or the piece that sends; -1 for none.
  // A transfer between pipeline stages has these: its microbatch, and a digest of the documents
  // that both stages must have of it.
  int microbatch = -1;
  std::uint64_t documents = 0;
};

// A call that takes its turn on a stream: who makes it, and between how many.
struct Exchange {
  BackendCommunicator* ranks;
  CollectiveKind kind;
  CollectiveName name;
  int rank, size;
  int peer = -1;  // A send and a receive have one.
};

}  // namespace lockstep
