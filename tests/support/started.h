// The built `lockstep` in the background, to be killed; and what is left of processes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/support/patience.h"
#include "tests/support/program.h"

namespace lockstep {

inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> list;
  for (std::string word; words >> word;) list.push_back(word);
  return list;
}

class Started {
 public:
  // `file_bytes`: no file may grow beyond it; 0 for no limit. What it says goes to `output`.
  // `before` is called in the new process, which then becomes the program.
  explicit Started(const std::string& line, std::int64_t file_bytes = 0,
                   const std::string& output = "/dev/null",
                   const std::function<void()>& before = {}) {
    const std::string program = lockstep_program();
    const std::vector<std::string> words = words_of(line);
    std::vector<const char*> arguments{program.c_str()};
    for (const std::string& word : words) arguments.push_back(word.c_str());
    arguments.push_back(nullptr);
    child_ = ::fork();
    if (child_ != 0) return;
    const int to = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(to, STDOUT_FILENO);
    ::dup2(to, STDERR_FILENO);
    const rlimit limit{static_cast<rlim_t>(file_bytes), static_cast<rlim_t>(file_bytes)};
    if (file_bytes > 0) ::setrlimit(RLIMIT_FSIZE, &limit);
    if (before) before();
    ::execv(program.c_str(), const_cast<char**>(arguments.data()));
    ::_exit(127);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  ~Started() {
    if (child_ > 0) kill_now();
  }
  pid_t pid() const { return child_; }

  // kill -9 of it, and nothing else. False if it had ended before.
  bool kill_now() {
    ::kill(child_, SIGKILL);
    return WIFSIGNALED(reap());
  }
  int exit_status() { return WEXITSTATUS(reap()); }

 private:
  int reap() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return status;
  }
  pid_t child_ = -1;
};

inline void pause_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Asks every 5 ms for at most 20 s, times the patience.
inline bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000 * patience(); ++i) {
    if (condition()) return true;
    pause_ms(5);
  }
  return false;
}

// State and parent of a process or thread, as its stat file in /proc has them behind the name;
// state 'X' where there is none.
struct ProcessStat {
  char state = 'X';
  pid_t parent = 0;
};
inline ProcessStat stat_of(const std::string& folder) {
  const std::string text = slurp(folder + "/stat");
  ProcessStat stat;
  if (text.rfind(')') != std::string::npos)
    std::istringstream(text.substr(text.rfind(')') + 1)) >> stat.state >> stat.parent;
  return stat;
}

// A killed process can be a zombie while its last threads still end, and with them its locks.
inline bool lives(pid_t process) {
  std::error_code gone;
  std::filesystem::directory_iterator thread("/proc/" + std::to_string(process) + "/task", gone);
  for (; !gone && thread != std::filesystem::directory_iterator(); thread.increment(gone)) {
    const char state = stat_of(thread->path().string()).state;
    if (state != 'X' && state != 'Z') return true;
  }
  return false;
}

inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> list;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t process = static_cast<pid_t>(std::stol(name));
    if (stat_of(entry.path().string()).parent == parent) list.push_back(process);
  }
  return list;
}

}  // namespace lockstep
