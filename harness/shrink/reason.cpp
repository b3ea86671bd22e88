#include "harness/shrink/reason.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <sstream>
#include <utility>

namespace lockstep {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string without_numbers(const std::string& text) {
  std::string kind;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(text[i])) {
      kind += text[i];
    } else if (kind.empty() || kind.back() != '#') {
      kind += '#';
    }
  }
  return kind;
}

// A weight digest: 32 hex digits.
bool is_digest(std::string word) {
  if (!word.empty() && std::ispunct(static_cast<unsigned char>(word.back()))) word.pop_back();
  return word.size() == 32 &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isxdigit(c); });
}

bool is_missing(const FirstDifference& where) {
  return where.got == "missing" || where.want == "missing";
}

// "layers.#.norm.out" -> "norm out": words for a name.
std::string last_parts(const std::string& kind) {
  const std::size_t number = kind.rfind("#.");
  return number == std::string::npos ? kind : kind.substr(number + 2);
}

// The promise of a contract, or the two ops of a hazard: the part of a sentence without its places.
std::string gist(const std::string& kind) {
  const std::size_t contract = kind.find("broken contract in ");
  if (contract != std::string::npos) return kind.substr(kind.rfind(": ") + 2);
  return kind.substr(0, kind.find(" ("));
}

// "graph_replays is 3, expected 12 (...)" -> "graph_replays is too small": whether one number or a
// range was expected hangs on the scenario. Empty for other sentences.
std::string counter_kind(const std::string& reason) {
  const std::size_t is = reason.find(" is "), expected = reason.find(", expected ");
  if (is == std::string::npos || expected == std::string::npos || reason.find(' ') != is) return "";
  std::istringstream got(reason.substr(is + 4, expected - is - 4));
  std::istringstream range(
      reason.substr(std::min(reason.find_first_of("-0123456789", expected), reason.size())));
  std::int64_t value = 0, least = 0;
  if (!(got >> value) || !(range >> least)) return "";
  return reason.substr(0, is) + (value < least ? " is too small" : " is too large");
}

// The first difference is what the same op wrote, or did not write.
bool same_op(const CaseResult& a, const CaseResult& b) {
  if (!a.first_difference || !b.first_difference) return false;
  const FirstDifference& x = *a.first_difference;
  const FirstDifference& y = *b.first_difference;
  return x.op == y.op && is_missing(x) == is_missing(y);
}

// "read after write: ... Missing edge: reduce -> compute. ..." -> "read after write: reduce ->
// compute", or empty.
std::string edge_of(const std::string& hazard) {
  static const std::string words = "Missing edge: ";
  const std::size_t edge = hazard.find(words), end = hazard.find('.', edge);
  if (edge == std::string::npos || end == std::string::npos) return "";
  const std::size_t first = edge + words.size();
  return hazard.substr(0, hazard.find(':')) + ": " + hazard.substr(first, end - first);
}

// For the kind of a hazard only the ops and the missing edge count, not where they were or how many
// others followed: " (head, step #)" and " (and # other hazards)" go.
std::string without_places(std::string kind) {
  for (std::size_t begin = kind.find(" ("); begin != std::string::npos;
       begin = kind.find(" (", begin)) {
    const std::size_t end = kind.find(')', begin);
    if (end == std::string::npos) break;
    const std::string inside = kind.substr(begin + 2, end - begin - 2);
    if (inside.ends_with("step #") || inside.starts_with("and # other hazard")) {
      kind.erase(begin, end + 1 - begin);
    } else {
      begin = end;
    }
  }
  return kind;
}

// The results alone are compared there, and each differs because of the others: a loss, a norm,
// then weights.
bool is_of_the_resumed_run(const CaseResult& a) {
  return a.first_difference && a.reason.ends_with("that is saved and loaded on its way");
}

}  // namespace

std::string tensor_kind(const std::string& tensor) {
  std::istringstream parts(tensor);
  std::string kind, part;
  while (std::getline(parts, part, '.')) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), is_digit);
    kind += (kind.empty() ? "" : ".") + (number ? "#" : part);
  }
  return kind;
}

std::string reason_kind(const std::string& reason) {
  if (const std::string counter = counter_kind(reason); !counter.empty()) return counter;
  // The text behind "; before it " tells another effect of the same bug, and that behind
  // "; grown by " a place. Neither is part of the kind.
  std::string own = reason.substr(0, reason.find("; before it "));
  own.erase(std::min(own.find("; grown by "), own.size()));
  std::istringstream words(
      own.substr(0, own.find(" [with ")) +
      (own.find(" [with ") == std::string::npos ? "" : own.substr(own.find(']') + 1)));
  std::string kind, word;
  while (words >> word) {
    if (is_digest(word)) word = "#";
    if (word.size() > 1 && word[0] == '/') word = word.substr(word.rfind('/') + 1);
    kind += (kind.empty() ? "" : " ") + without_numbers(word);
  }
  return without_places(std::move(kind));
}

bool same_reason(const CaseResult& a, const CaseResult& b) {
  if (a.verdict != b.verdict || a.judge != b.judge) return false;
  if (a.first_difference.has_value() != b.first_difference.has_value()) return false;
  if (!a.first_difference) return reason_kind(a.reason) == reason_kind(b.reason);
  return same_op(a, b) &&
         tensor_kind(a.first_difference->tensor) == tensor_kind(b.first_difference->tensor);
}

bool same_cause(const CaseResult& a, const CaseResult& b) {
  if (a.verdict != b.verdict) return false;
  if (is_of_the_resumed_run(a) && is_of_the_resumed_run(b)) return true;
  if (a.judge != b.judge) return false;
  if (a.judge == JudgeKind::gradient) return same_op(a, b);
  return a.judge == JudgeKind::hazard && !edge_of(a.reason).empty() &&
         edge_of(a.reason) == edge_of(b.reason);
}

std::string reason_name(const CaseResult& result) {
  std::string text = to_text(result.judge);
  if (result.first_difference) {
    text += " " + last_parts(tensor_kind(result.first_difference->tensor));
  } else {
    text += " " + gist(reason_kind(result.reason));
  }
  std::string name;
  for (const char c : text) {
    const char low = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if ((low >= 'a' && low <= 'z') || is_digit(low)) {
      name += low;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  constexpr std::size_t kMost = 40;
  if (name.size() > kMost) {  // Ends with a whole word, if there is one.
    const std::size_t end = name.rfind('-', kMost);
    name = name.substr(0, end == std::string::npos ? kMost : end);
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

}  // namespace lockstep
