// An engine that misbehaves: `misbehaving_engine HOW LOCKSTEP` passes the lines of the engine
// protocol on to `LOCKSTEP engine` and back, and spoils them as HOW says.
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

namespace {

namespace json = boost::json;

int requests = -1, replies = -1;  // The descriptors of who judges.
int to_engine = -1, from_engine = -1;
int runs = 0;

void write_all(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
    if (count <= 0) ::_exit(0);
    done += static_cast<std::size_t>(count);
  }
}

bool read_line(int descriptor, std::string& rest, std::string& line) {
  for (std::size_t end; (end = rest.find('\n')) == std::string::npos;) {
    char bytes[65536];
    const ssize_t count = ::read(descriptor, bytes, sizeof bytes);
    if (count <= 0) return false;
    rest.append(bytes, static_cast<std::size_t>(count));
  }
  line = rest.substr(0, rest.find('\n'));
  rest.erase(0, line.size() + 1);
  return true;
}

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

[[noreturn]] void hang_with_a_child() {
  std::signal(SIGTERM, SIG_IGN);
  if (::fork() == 0) sleep_for_ever();
  sleep_for_ever();
}

[[noreturn]] void write_without_end() {
  const std::string much(1 << 16, 'x');
  for (;;) write_all(replies, much);
}

json::object& first_gradient(json::object& reply) {
  for (json::value& item : reply["tensors"].as_array()) {
    if (item.as_object()["kind"] == "gradient") return item.as_object();
  }
  std::abort();
}

void drop(json::object& reply, bool gradient) {
  json::array kept;
  bool dropped = false;
  for (json::value& item : reply["tensors"].as_array()) {
    const bool is_one = (item.as_object()["kind"] == "gradient") == gradient;
    if (is_one && !dropped) {
      dropped = true;
      continue;
    }
    kept.push_back(item);
  }
  reply["tensors"] = kept;
}

void count_other(json::object& reply, const char* counter, std::int64_t value) {
  reply["counters"].as_object()[counter] = value;
}

// What is done with a request before it is passed on.
const std::map<std::string, void (*)()> kBeforeARun{
    {"crash", [] { std::abort(); }},
    {"exit", [] { ::_exit(7); }},
    {"hang", hang_with_a_child},
    {"garbage", [] { write_all(replies, "warming up...\n"); }},
    {"no-utf8", [] { write_all(replies, "{\"id\":3,\"phase\":\"\xff\"}\n"); }},
    {"another-id", [] { write_all(replies, "{\"id\":99,\"ok\":true}\n"); }},
    {"long-line", write_without_end},
    {"prints",
     [] {
       const std::string much(1 << 20, 'p');
       write_all(STDOUT_FILENO, much);
       write_all(STDERR_FILENO, much + "\n");
     }},
};

// What is done with the final reply to a run.
const std::map<std::string, void (*)(json::object&)> kAfterARun{
    {"drops-a-gradient", [](json::object& reply) { drop(reply, true); }},
    {"drops-an-activation-now-and-then",
     [](json::object& reply) {
       if (runs % 2 == 0) drop(reply, false);
     }},
    {"another-shape",
     [](json::object& reply) {
       if (runs % 2 == 0) first_gradient(reply)["shape"] = json::array{1, 1};
     }},
    {"lies-about-replays", [](json::object& reply) { count_other(reply, "graph_replays", 0); }},
    {"lies-about-microbatches",
     [](json::object& reply) { count_other(reply, "microbatches", 1000); }},
    {"counts-otherwise", [](json::object& reply) { count_other(reply, "ops_recomputed", runs); }},
    {"forgets-a-counter",
     [](json::object& reply) { reply["counters"].as_object().erase("tokens"); }},
    {"differs-by-process",
     [](json::object& reply) {
       char digest[65];
       std::snprintf(digest, sizeof digest, "%064d", ::getpid());
       first_gradient(reply)["sha256"] = digest;
     }},
    {"nan", [](json::object& reply) { first_gradient(reply)["nan"] = 1; }},
    {"other-rows",
     [](json::object& reply) {
       reply["rows"].as_array()[0].as_object()["documents"].as_array()[0] = json::array{0, 3};
     }},
    {"fails",
     [](json::object& reply) {
       if (runs > 1) reply = {{"id", reply["id"]}, {"failed", "capture"}, {"what", "no stream"}};
     }},
    {"no-memory",
     [](json::object& reply) {
       reply = {{"id", reply["id"]}, {"failed", "memory"}};
     }},
    {"skips",
     [](json::object& reply) {
       reply = {{"id", reply["id"]}, {"skipped", "no GPU"}};
     }},
    {"no-counters", [](json::object& reply) { reply.erase("counters"); }},
};

void spoil_hello(const std::string& how, json::object& reply) {
  if (how == "speaks-2") reply["protocol"] = 2;
  if (how == "says-little") reply.erase("honours");
  if (how == "honours-little") {
    reply["honours"] = {{"numerics", {"fp32"}}, {"model.pattern", {{"symbols", "*-"}}}};
    reply["claims"].as_object()["loss_scaled"] = false;  // It goes on taking the feed's scale.
  }
  if (how == "has-its-own-weights") reply["claims"].as_object()["weights_by_name"] = false;
  if (how == "has-its-own-dropout") reply["claims"].as_object()["dropout_by_key"] = false;
  // Its fault is then one of unequal runs that nobody denied.
  if (how == "not-deterministic" || how == "unstable-once")
    reply["claims"].as_object()["deterministic"] = false;
}

// The reply to one request.
void pass(const std::string& how, const std::string& op, std::string& rest) {
  std::string line;
  json::array tensors, rows;
  for (;;) {
    if (!read_line(from_engine, rest, line)) ::_exit(3);
    json::object reply = json::parse(line).as_object();
    if (reply.contains("more")) {
      write_all(replies, line + "\n");
      continue;
    }
    if (op == "hello") spoil_hello(how, reply);
    const auto spoil = kAfterARun.find(how);
    if (op == "run" && spoil != kAfterARun.end()) spoil->second(reply);
    if (op == "run" && (how == "not-deterministic" || (how == "unstable-once" && runs == 8)))
      first_gradient(reply)["sha256"] = std::string(63, 'a') + std::to_string(runs % 10);
    std::string text = json::serialize(reply) + "\n";
    // In one write, so that it is there before the next request is written.
    if (op == "reset" && how == "talks-between-cases") text += "{\"id\":0}\n";
    write_all(replies, text);
    return;
  }
}

void start_engine(const char* program) {
  int in[2], out[2];
  if (::pipe(in) != 0 || ::pipe(out) != 0) std::abort();
  if (::fork() == 0) {
    ::close(in[1]);
    ::close(out[0]);
    ::close(requests);
    ::close(replies);
    const std::string descriptors = std::to_string(in[0]) + "," + std::to_string(out[1]);
    ::setenv("LOCKSTEP_ENGINE_FDS", descriptors.c_str(), 1);
    ::execl(program, program, "engine", "--device", "sim", nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_engine = in[1];
  from_engine = out[0];
}

}  // namespace

int main(int count, char** words) {
  const char* const given = std::getenv("LOCKSTEP_ENGINE_FDS");
  if (count != 3 || given == nullptr || std::sscanf(given, "%d,%d", &requests, &replies) != 2)
    return 2;
  const std::string how = words[1];
  if (how == "dies-at-once") return 1;
  std::signal(SIGPIPE, SIG_IGN);
  start_engine(words[2]);
  std::string asked, answered, line;
  bool was_reset = false;
  while (read_line(requests, asked, line)) {
    const std::string op(json::parse(line).as_object().at("op").as_string());
    runs += op == "run";
    const auto spoil = kBeforeARun.find(how);
    if (op == "run" && spoil != kBeforeARun.end()) spoil->second();
    if (op == "check" && how == "silent") sleep_for_ever();
    if (op == "check" && was_reset && how == "talks-late") write_all(replies, "{\"id\":0}\n");
    was_reset = op == "reset";
    write_all(to_engine, line + "\n");
    pass(how, op, answered);
    if (op == "reset" && how == "dies-between-cases") ::_exit(1);
    if (op == "check" && how == "dies-after-every-check") ::_exit(1);
    if (op == "bye") break;
  }
  ::close(to_engine);
  while (::wait(nullptr) > 0) {
  }
  return 0;
}
