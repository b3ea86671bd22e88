#include "scenarios/syntax/node.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <charconv>
#include <map>
#include <sstream>

#include "scenarios/syntax/yaml_slip.h"

namespace lockstep {
namespace {

// Offsets to lines and columns; a column counts characters, not bytes. A place costs the same on
// any line, however long.
class Lines {
 public:
  explicit Lines(const std::string& bytes) : bytes_(bytes) {
    starts_.push_back(0);
    std::size_t characters = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      if (at % kEvery == 0) characters_.push_back(characters);
      if (bytes[at] == '\n') starts_.push_back(at + 1);
      characters += begins_character(at);
    }
    if (bytes.size() % kEvery == 0) characters_.push_back(characters);
  }

  FilePlace place(int offset) const {
    if (offset < 0) return {};
    const std::size_t at = std::min(static_cast<std::size_t>(offset), bytes_.size());
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), at);
    return {static_cast<int>(after - starts_.begin()),
            static_cast<int>(1 + characters_before(at) - characters_before(*(after - 1)))};
  }

 private:
  static constexpr std::size_t kEvery = 64;  // Bytes between two counts.

  bool begins_character(std::size_t at) const {
    return (static_cast<unsigned char>(bytes_[at]) & 0xC0) != 0x80;
  }
  std::size_t characters_before(std::size_t at) const {
    std::size_t count = characters_[at / kEvery];
    for (std::size_t i = at / kEvery * kEvery; i < at; ++i) count += begins_character(i);
    return count;
  }

  const std::string& bytes_;
  std::vector<std::size_t> starts_;
  std::vector<std::size_t> characters_;  // Before every 64th byte.
};

struct Stop {};  // Thrown by the handler where going on would be pointless or dangerous.

// Builds the tree from the parser's events and refuses what a scenario may not hold.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& bytes, Faults& faults)
      : bytes_(bytes), lines_(bytes), faults_(faults) {}

  std::optional<Node> root;
  FilePlace place(const YAML::Mark& mark) const { return lines_.place(mark.pos); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    faults_.add("Y01", place(mark), "(file)", "has more than one document",
                "one file is one scenario", "a file for each");
    throw Stop{};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    add(make(Node::Kind::null, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(place(mark), "is an alias", "write the value out, or quote it");
    add(make(Node::Kind::refused, mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string& value) override {
    Node node = make(Node::Kind::scalar, mark);
    node.text = value;
    look_at_source(mark, node);
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(make(Node::Kind::sequence, mark), mark);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(make(Node::Kind::mapping, mark), mark);
  }
  void OnMapEnd() override { close(); }

 private:
  // A mapping is fed key, value, key, value. Keys that are no scalars are kept: no section knows
  // them (Y03).
  struct Level {
    Node node;
    std::map<std::string, int> lines_of_keys;
  };

  char source(std::size_t at) const { return at < bytes_.size() ? bytes_[at] : '\0'; }

  void refuse(FilePlace place, const std::string& what, const std::string& nearest) {
    faults_.add("Y02", place, "(file)", what,
                "what is written is what is meant: nothing is expanded", nearest);
  }

  // An anchor or a tag stands where its node starts, so the source's first byte tells (the event
  // does not: a tag `!` looks like a quote there).
  Node make(Node::Kind kind, const YAML::Mark& mark) {
    Node node;
    node.kind = kind;
    node.place = place(mark);
    const char first = source(mark.pos);
    if (first == '&') refuse(node.place, "has an anchor", "the value without it");
    if (first == '!') refuse(node.place, "has a tag", "the value without it");
    return node;
  }

  void look_at_source(const YAML::Mark& mark, Node& node) {
    const std::size_t start = mark.pos;
    const char first = source(start);
    node.quoted = first == '"' || first == '\'';
    if (first == '&' || first == '!') return;  // Refused already.
    if (first == '|' || first == '>') node.single_line = false;
    if (!node.quoted) {
      node.single_line =
          node.single_line && bytes_.compare(start, node.text.size(), node.text) == 0;
      return;
    }
    std::size_t at = start + 1;
    for (; at < bytes_.size() && bytes_[at] != first; ++at) {
      if (bytes_[at] == '\n') node.single_line = false;
      if (bytes_[at] == '\\' && first == '"') ++at;
    }
    // The parser closes a quote at the end of the file by itself.
    if (at >= bytes_.size())
      faults_.add("Y01", node.place, "(file)", "is no YAML: a quote is not closed",
                  "it cannot be read");
  }

  void open(Node node, const YAML::Mark& mark) {
    if (static_cast<int>(levels_.size()) == kMaxDepth) {
      faults_.add("Y01", place(mark), "(file)", "is nested deeper than 32 levels",
                  "no key goes that deep");
      throw Stop{};
    }
    levels_.push_back({std::move(node), {}});
  }

  void close() {
    Node node = std::move(levels_.back().node);
    levels_.pop_back();
    add(std::move(node));
  }

  void add(Node node) {
    if (levels_.empty()) {
      root = std::move(node);
      return;
    }
    Level& level = levels_.back();
    Node& parent = level.node;
    if (parent.kind == Node::Kind::mapping && parent.keys.size() == parent.items.size()) {
      look_at_key(level, node);
      parent.keys.push_back(std::move(node));
      return;
    }
    // The parser puts a value that is not there at the next token, which may be lines away.
    if (node.kind == Node::Kind::null && parent.kind == Node::Kind::mapping) {
      const FilePlace key = parent.keys.back().place;
      if (node.place.line != key.line) node.place = key;
    }
    parent.items.push_back(std::move(node));
  }

  void look_at_key(Level& level, const Node& key) {
    if (key.kind != Node::Kind::scalar) return;
    if (key.text == "<<" && !key.quoted)
      refuse(key.place, "has a merge key `<<`", "the keys themselves");
    const auto [first, is_new] = level.lines_of_keys.emplace(key.text, key.place.line);
    if (is_new) return;
    faults_.add(
        "Y04", key.place, path_to(key.text.empty() ? "\"\"" : key.text), "is given twice",
        "only one of them could count; the first is in line " + std::to_string(first->second),
        "one of them");
  }

  // The key's name with those of the mappings around it.
  std::string path_to(const std::string& last) const {
    std::string path;
    for (std::size_t i = 0; i + 1 < levels_.size(); ++i) {
      const Node& node = levels_[i].node;
      if (node.kind == Node::Kind::sequence) {
        path += "[" + std::to_string(node.items.size()) + "]";
      } else if (node.keys.size() > node.items.size()) {
        // Otherwise the position is inside of a key, which has no name.
        path += (path.empty() ? "" : ".") + node.keys.back().text;
      }
    }
    return path.empty() ? last : path + "." + last;
  }

  const std::string& bytes_;
  const Lines lines_;
  Faults& faults_;
  std::vector<Level> levels_;
  int documents_ = 0;
};

// The parser knows no directives that it did not carry out, so they are looked for in the source:
// only they start a line with %.
void refuse_directives(const std::string& bytes, Faults& faults) {
  int line = 1;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] == '%' && (at == 0 || bytes[at - 1] == '\n')) {
      faults.add("Y02", {line, 1}, "(file)", "has a directive", "what is written is what is meant",
                 "the file without it");
    }
    if (bytes[at] == '\n') ++line;
  }
}

// Text that the parser cannot read is no YAML (Y01), or has an alias, anchor or tag that leads
// nowhere (Y02).
void report(const YAML::ParserException& error, const TreeBuilder& builder,
            const std::string& bytes, Faults& faults) {
  const std::string message = error.msg;
  const auto says = [&](const char* word) { return message.find(word) != std::string::npos; };
  if (dynamic_cast<const YAML::DeepRecursion*>(&error) != nullptr) {
    faults.add("Y01", builder.place(error.mark), "(file)", "is nested deeper than 32 levels",
               "no key goes that deep");
  } else if (says("alias") || says("anchor")) {
    faults.add("Y02", builder.place(error.mark), "(file)", "has an alias or anchor: " + message,
               "an unquoted * or & starts one", "the text in quotes");
  } else if (says("tag") || says("directive") || says("YAML")) {
    faults.add("Y02", builder.place(error.mark), "(file)", "has a tag or directive: " + message,
               "an unquoted ! or % starts one", "the text in quotes");
  } else {
    const std::string slip = yaml_slip(bytes, error.mark.line + 1);
    faults.add("Y01", builder.place(error.mark), "(file)",
               "is no YAML: " + (slip.empty() ? message : slip + " (" + message + ")"),
               "it cannot be read");
  }
}

}  // namespace

std::optional<Node> parse_document(const std::string& bytes, Faults& faults) {
  const std::string text = bytes.compare(0, 3, "\xEF\xBB\xBF") == 0 ? bytes.substr(3) : bytes;
  refuse_directives(text, faults);
  TreeBuilder builder(text, faults);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::ParserException& error) {
    report(error, builder, text, faults);
    return std::nullopt;
  } catch (const Stop&) {
    // When a second document begins, the first has been read and may name the rule that is to
    // refuse it.
    const bool whole = builder.root && builder.root->kind != Node::Kind::null;
    return whole ? std::move(builder.root) : std::nullopt;
  }
  if (!builder.root || builder.root->kind == Node::Kind::null) {
    faults.add("Y01", {}, "(file)", "is empty", "nothing is asked for", "schema: 1 and a name");
    return std::nullopt;
  }
  return std::move(builder.root);
}

FilePlace find_place(const Node& root, const std::string& key) {
  const Node* node = &root;
  FilePlace place;
  for (std::size_t at = 0; at < key.size();) {
    const std::size_t begin = at + (key[at] == '.' || key[at] == '[');
    const std::size_t end = std::min(key.find_first_of(".[]", begin), key.size());
    const std::string name = key.substr(begin, end - begin);
    const Node* next = nullptr;
    if (node->kind == Node::Kind::mapping) {
      for (std::size_t i = 0; i < node->keys.size(); ++i) {
        if (node->keys[i].text == name) next = &node->items[i];
      }
    } else if (node->kind == Node::Kind::sequence) {
      std::size_t index = node->items.size();
      std::from_chars(name.data(), name.data() + name.size(), index);
      if (index < node->items.size()) next = &node->items[index];
    }
    if (next == nullptr) break;
    node = next;
    place = node->place;
    at = end + (end < key.size() && key[end] == ']');
  }
  return place;
}

}  // namespace lockstep
