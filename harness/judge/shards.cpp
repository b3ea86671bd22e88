#include "harness/judge/shards.h"

#include <algorithm>

#include "kernels/core/at.h"

namespace lockstep {
namespace {

struct Piece {
  std::int64_t first = 0, end = 0;
  friend auto operator<=>(const Piece&, const Piece&) = default;
};

// Returns the nonempty pieces of each parameter.
std::vector<std::vector<Piece>> pieces_of(const std::vector<ParameterShape>& parameters,
                                          const std::vector<ParameterView>& views) {
  std::vector<std::vector<Piece>> pieces(parameters.size());
  for (const ParameterView& view : views) {
    if (view.weight.size() == 0) continue;
    at(pieces, view.index).push_back({view.first, view.first + view.weight.size()});
  }
  return pieces;
}

// Returns "" or a sentence on a view of no parameter.
std::string unknown_view(const std::vector<ParameterShape>& parameters,
                         const std::vector<ParameterView>& views, std::size_t rank) {
  for (const ParameterView& view : views) {
    if (view.index >= 0 && view.index < std::ssize(parameters)) continue;
    return "rank " + std::to_string(rank) + " holds a view of parameter " +
           std::to_string(view.index) + ", and there are " + std::to_string(parameters.size());
  }
  return "";
}

std::string gap_in(const ParameterShape& parameter, std::vector<Piece> pieces,
                   const std::string& whose) {
  std::sort(pieces.begin(), pieces.end());
  std::int64_t reached = 0;
  for (const Piece& piece : pieces) {
    if (piece.first != reached) {
      return whose + (piece.first < reached ? " twice" : " nowhere") + ": " + parameter.name +
             " from element " + std::to_string(std::min(piece.first, reached));
    }
    reached = piece.end;
  }
  if (reached == parameter.count()) return "";
  return whose + " nowhere: " + parameter.name + " from element " + std::to_string(reached);
}

}  // namespace

std::string uncovered(const std::vector<ParameterShape>& parameters, bool sharded,
                      const std::vector<std::vector<ParameterView>>& ranks, std::int64_t stages,
                      std::int64_t expert_ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (const std::string unknown = unknown_view(parameters, ranks[r], r); !unknown.empty())
      return unknown;
  }
  const std::size_t of_a_stage = ranks.size() / stages;
  std::vector<std::vector<std::vector<Piece>>> pieces;
  for (const std::vector<ParameterView>& views : ranks)
    pieces.push_back(pieces_of(parameters, views));
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const bool of_experts = parameters[p].name.find(".experts.") != std::string::npos;
    const auto apart = static_cast<std::size_t>(of_experts ? expert_ranks : 1);
    const std::size_t wholes = sharded ? 1 : of_a_stage / apart;  // How often it is there.
    const bool alone = !sharded && stages == 1 && apart == 1;
    for (std::size_t whole = 0; whole < wholes; ++whole) {
      std::vector<Piece> together;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        const std::vector<Piece>& own = pieces[r][p];
        const bool is_of_it = sharded || r % of_a_stage / apart == whole;
        if (is_of_it) together.insert(together.end(), own.begin(), own.end());
      }
      const std::string whose =
          alone ? "rank " + std::to_string(whole) + " holds" : "the ranks hold";
      const std::string gap = gap_in(parameters[p], together, whose);
      if (!gap.empty()) return gap;
    }
  }
  return "";
}

}  // namespace lockstep
