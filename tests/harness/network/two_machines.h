// Two machines on one: network namespaces with an interface each, and a cable between them that a
// test pulls, or that loses, repeats and delays packets. tests/on_two_machines.sh runs such tests.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::test {

// What becomes of the packets of IPv4 on the cable. The least delay is `delay_ms`, and each packet
// has up to `jitter_ms` more, so that packets overtake each other.
struct Weather {
  int lost_percent = 0, repeated_percent = 0, delay_ms = 0, jitter_ms = 0;
};

// Joins two interfaces of this process's namespace, as a cable does. Frames pass as the kernel has
// them, with its notes on checksums and segments, so they arrive as if the interfaces were one.
class Cable {
 public:
  Cable(const std::string& one, const std::string& other, std::uint64_t seed)
      : ends_{End(one), End(other)}, random_(seed), thread_([this] { carry(); }) {}
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;
  ~Cable() {
    ends_too_ = true;
    thread_.join();
    for (const End& end : ends_) ::close(end.socket);
  }
  void is_in(const Weather& weather) {
    lost_ = weather.lost_percent;
    repeated_ = weather.repeated_percent;
    delay_ = weather.delay_ms;
    jitter_ = weather.jitter_ms;
  }
  std::int64_t passed() const { return passed_; }
  std::int64_t lost() const { return lost_packets_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Frame {
    Clock::time_point due;
    std::vector<std::byte> bytes;
  };
  struct End {
    explicit End(const std::string& interface)
        : socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL))) {
      sockaddr_ll place{};
      place.sll_family = AF_PACKET;
      place.sll_protocol = htons(ETH_P_ALL);
      place.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
      const int yes = 1;
      if (socket < 0 || place.sll_ifindex == 0 ||
          ::setsockopt(socket, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) != 0 ||
          ::bind(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0)
        throw std::runtime_error("no cable at " + interface + ": " + std::strerror(errno));
    }
    int socket;
    std::vector<Frame> waiting = {};  // For this end.
  };

  void carry() {
    while (!ends_too_) {
      std::array<pollfd, 2> files{{{ends_[0].socket, POLLIN, 0}, {ends_[1].socket, POLLIN, 0}}};
      ::poll(files.data(), files.size(), wait_ms());
      take(ends_[0], ends_[1]);
      take(ends_[1], ends_[0]);
      deliver(ends_[0]);
      deliver(ends_[1]);
    }
  }
  int wait_ms() const {
    const bool some = !ends_[0].waiting.empty() || !ends_[1].waiting.empty();
    return some ? 1 : 20;
  }
  void take(End& from, End& to) {
    for (;;) {
      sockaddr_ll sender{};
      socklen_t size = sizeof sender;
      const ssize_t count = ::recvfrom(from.socket, buffer_.data(), buffer_.size(), 0,
                                       reinterpret_cast<sockaddr*>(&sender), &size);
      if (count <= 0) return;
      if (sender.sll_pkttype == PACKET_OUTGOING) continue;  // The interface's own.
      const bool ip = sender.sll_protocol == htons(ETH_P_IP);
      if (ip && chance(lost_)) {
        ++lost_packets_;
        continue;
      }
      const std::vector<std::byte> bytes(buffer_.begin(), buffer_.begin() + count);
      for (int copies = ip && chance(repeated_) ? 2 : 1; copies > 0; --copies) {
        const int late = ip ? delay_ + static_cast<int>(random_() % (jitter_ + 1)) : 0;
        to.waiting.push_back({Clock::now() + std::chrono::milliseconds(late), bytes});
      }
    }
  }
  void deliver(End& to) {
    const Clock::time_point now = Clock::now();
    // In the order in which they are due, and else in that in which they came.
    std::stable_sort(to.waiting.begin(), to.waiting.end(),
                     [](const Frame& a, const Frame& b) { return a.due < b.due; });
    auto next = to.waiting.begin();
    for (; next != to.waiting.end() && next->due <= now; ++next) {
      // A cable that is pulled delivers nothing.
      if (::send(to.socket, next->bytes.data(), next->bytes.size(), 0) > 0) ++passed_;
    }
    to.waiting.erase(to.waiting.begin(), next);
  }
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  std::array<End, 2> ends_;
  std::mt19937_64 random_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(1 << 18);
  std::atomic<int> lost_ = 0, repeated_ = 0, delay_ = 0, jitter_ = 0;
  std::atomic<std::int64_t> passed_ = 0, lost_packets_ = 0;
  std::atomic<bool> ends_too_ = false;
  std::thread thread_;
};

class TwoMachines {
 public:
  explicit TwoMachines(std::uint64_t seed) {
    if (std::getenv("LOCKSTEP_OWN_NETWORK") == nullptr)
      throw std::runtime_error("run this test by tests/on_two_machines.sh");
    try {
      for (const int machine : {0, 1}) boot(machine);
      cable_ = std::make_unique<Cable>(end_of(0), end_of(1), seed);
    } catch (...) {
      switch_off();
      throw;
    }
  }
  TwoMachines(const TwoMachines&) = delete;
  TwoMachines& operator=(const TwoMachines&) = delete;
  ~TwoMachines() {
    cable_.reset();
    switch_off();
  }
  static std::string address(int machine) { return "10.77.0." + std::to_string(machine + 1); }

  // The calling process, which is about to become a program, goes on at the machine.
  void enter(int machine) const {
    const std::string path = "/proc/" + std::to_string(keepers_[machine]) + "/ns/net";
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || ::setns(file, CLONE_NEWNET) != 0) ::_exit(126);
    ::close(file);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Nothing outlives the test.
  }
  // Both machines lose their carrier.
  void pull_cable() {
    in_room("ip link set " + end_of(0) + " down && ip link set " + end_of(1) + " down");
  }
  void plug_cable_in() {
    in_room("ip link set " + end_of(0) + " up && ip link set " + end_of(1) + " up");
  }
  Cable& cable() { return *cable_; }

 private:
  static std::string end_of(int machine) { return "cable" + std::to_string(machine); }

  // A process keeps the namespace of the machine.
  void boot(int machine) {
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const pid_t keeper = ::fork();
    if (keeper == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char permitted = ::unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
      if (::write(pipe[1], &permitted, 1) == 1) {
        for (;;) ::pause();
      }
      ::_exit(1);
    }
    keepers_[machine] = keeper;
    char permitted = 'n';
    ::close(pipe[1]);
    const ssize_t count = ::read(pipe[0], &permitted, 1);
    ::close(pipe[0]);
    if (count != 1 || permitted != 'y') throw std::runtime_error("no namespace for a machine");
    in_room("ip link add " + end_of(machine) + " type veth peer name eth0 netns " +
            std::to_string(keeper) + " && ip link set " + end_of(machine) + " up");
    at(machine, "ip address add " + address(machine) +
                    "/24 dev eth0 && ip link set lo up && ip link set eth0 up");
  }
  void switch_off() {
    for (const int machine : {0, 1}) {
      if (keepers_[machine] <= 0) continue;
      ::kill(keepers_[machine], SIGKILL);
      ::waitpid(keepers_[machine], nullptr, 0);
      // A test may switch on other machines at once, so the interface is removed now.
      [[maybe_unused]] const int status =
          std::system(("ip link delete " + end_of(machine) + " 2>/dev/null").c_str());
    }
  }
  // In the namespace of the cable, where this process is.
  static void in_room(const std::string& command) {
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
  }
  void at(int machine, const std::string& command) const {
    const pid_t child = ::fork();
    if (child == 0) {
      enter(machine);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) throw std::runtime_error("failed at machine: " + command);
  }

  std::array<pid_t, 2> keepers_ = {-1, -1};
  std::unique_ptr<Cable> cable_;
};

}  // namespace lockstep::test
