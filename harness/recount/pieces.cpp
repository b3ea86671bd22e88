#include "harness/recount/pieces.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "harness/recount/layout.h"
#include "kernels/core/at.h"

namespace lockstep::recount {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void append(Whole& whole, const std::string& text, bool selectable) {
  for (const char c : text) {
    whole.tokens.push_back(static_cast<unsigned char>(c));
    whole.selectable.push_back(selectable);
  }
}

Whole document_of_record(const Scenario::Data& data, const boost::json::object& record) {
  Whole whole;
  if (const auto* text = record.if_contains("text")) {
    append(whole, std::string(text->as_string()), true);
    return whole;
  }
  const std::vector<std::string>& roles = data.mask.roles;
  for (const boost::json::value& message : record.at("messages").as_array()) {
    const std::string role(message.at("role").as_string());
    append(whole, role + ": ", false);
    append(whole, std::string(message.at("content").as_string()),
           std::find(roles.begin(), roles.end(), role) != roles.end());
    append(whole, "\n", false);
  }
  return whole;
}

std::vector<Whole> documents_of_records(const Scenario::Data& data, const fs::path& path) {
  std::vector<Whole> documents;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    documents.push_back(document_of_record(data, boost::json::parse(line).as_object()));
  }
  return documents;
}

}  // namespace

std::vector<Whole> documents_of_files(const Scenario& scenario) {
  const fs::path path = fs::path(scenario.folder) / scenario.data.path;
  if (scenario.data.kind == DataKind::jsonl) return documents_of_records(scenario.data, path);
  std::vector<std::string> names;  // Relative to the folder.
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (!entry.is_symlink() && entry.is_regular_file())
      names.push_back(entry.path().lexically_relative(path).string());
  }
  std::sort(names.begin(), names.end());
  std::vector<Whole> documents;
  for (const std::string& name : names)
    append(documents.emplace_back(), bytes_of(path / name), true);
  return documents;
}

std::int32_t Piece::next(std::int64_t i) const {
  const std::int64_t place = begin + i + 1;
  if (place >= end && !looks_on) return -1;
  return at(whole->selectable, place) ? at(whole->tokens, place) : -1;
}

std::vector<Piece> pieces_of(const Scenario::Data& data, const std::vector<Whole>& documents) {
  const std::int64_t longest = longest_document(data);
  const bool splits = data.long_documents == LongDocuments::split;
  std::vector<Piece> pieces;
  for (const Whole& whole : documents) {
    const std::int64_t length = std::ssize(whole.tokens);
    pieces.push_back({&whole, 0, std::min(length, longest)});
    while (splits && pieces.back().end < length) {
      pieces.back().looks_on = !data.mask.document_end;
      const std::int64_t begin = pieces.back().end;
      pieces.push_back({&whole, begin, std::min(length, begin + longest)});
    }
  }
  return pieces;
}

std::vector<std::vector<Piece>> next_fit(const Scenario::Data& data,
                                         const std::vector<Piece>& pieces) {
  std::vector<std::vector<Piece>> packs;
  std::int64_t left = -1;
  for (const Piece& piece : pieces) {
    const std::int64_t rows = rows_of_slot(data, piece.length());
    if (packs.empty() || rows > left) {
      packs.emplace_back();
      left = data.pack_length;
    }
    left -= rows;
    packs.back().push_back(piece);
  }
  return packs;
}

}  // namespace lockstep::recount
