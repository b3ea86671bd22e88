// Packs, documents and masks.
#include <algorithm>
#include <cstdint>

#include "harness/generate/parts.h"
#include "scenarios/documents/documents.h"
#include "scenarios/documents/layout.h"

namespace lockstep {
namespace {

std::int64_t draw_length(Choices& c, const Scenario& s, bool empties, std::int64_t room) {
  const Scenario::Model::Mamba& m = s.model.mamba;
  std::vector<std::int64_t> edges{1,
                                  2,
                                  m.conv_width - 1,
                                  m.conv_width,
                                  m.conv_width + 1,
                                  m.chunk - 1,
                                  m.chunk,
                                  m.chunk + 1,
                                  2 * m.chunk + 1,
                                  31,
                                  32,
                                  33,
                                  63,
                                  64,
                                  65};
  if (empties) edges.push_back(0);
  std::int64_t length =
      c.one_in(3) ? c.between(empties ? 0 : 1, std::max<std::int64_t>(1, room)) : c.pick(edges);
  if (c.one_in(12)) length = room;  // Exactly what is left.
  return std::clamp<std::int64_t>(length, empties ? 0 : 1, std::max<std::int64_t>(room, 0));
}

// As many documents of a token, or of none, as there is room for.
MicrobatchLengths draw_crowd(Choices& c, const Scenario::Data& d, bool empties) {
  MicrobatchLengths list;
  const std::int64_t most = c.between(20, 60);
  for (std::int64_t used = 0; std::ssize(list) < most;
       used += slot_rows(list.back(), d.gaps, d.align)) {
    const bool fits = used + slot_rows(1, d.gaps, d.align) <= d.pack_length;
    if (!fits && !empties) break;
    list.push_back(fits && !(empties && c.one_in(2)) ? 1 : 0);
  }
  return list;
}

MicrobatchLengths draw_documents(Choices& c, const Scenario& s, const Swarm& swarm) {
  if (swarm.rare == RareSize::many_documents || swarm.rare == RareSize::buckets_at_powers_of_two)
    return draw_rare_documents(c, swarm.rare, s);
  MicrobatchLengths list;
  std::int64_t used = 0;
  if (swarm.empties && c.one_in(8)) return list;
  if (c.one_in(32)) return draw_crowd(c, s.data, swarm.empties);
  // Cut to the pack's length it leaves no row for another.
  if (swarm.truncation && longest_fitting(s.data) == s.data.pack_length && c.one_in(4)) {
    return {s.data.pack_length + c.between(1, 300)};
  }
  do {
    // The longest document whose slot still fits.
    std::int64_t room = s.data.pack_length - used;
    while (room > 0 && used + slot_rows(room, s.data.gaps, s.data.align) > s.data.pack_length)
      --room;
    if (room == 0 && !swarm.empties) break;
    const std::int64_t length = draw_length(c, s, swarm.empties, room);
    list.push_back(length);
    used += slot_rows(length, s.data.gaps, s.data.align);
  } while (list.size() < 24 && !c.one_in(5));
  return list;
}

// Long packs where they are few: the rows of all passes are what a case costs. Every length meets
// several ranks, many steps and many microbatches; only not all of them at once.
std::int64_t draw_pack_length(Choices& c, const Swarm& swarm, const Scenario& s) {
  const std::int64_t most_rows = swarm.long_packs ? 2048 : swarm.wide ? 256 : 704;
  std::int64_t passes = 0;
  for (std::int64_t step = 0; step < s.training.steps; ++step)
    passes += s.training.microbatches_at(step);
  passes *= s.parallel.data;
  std::vector<std::int64_t> lengths{32, 64, 17, 96, 128};
  if (swarm.long_packs) lengths = {160, 256, 512, 1024, 17};
  if (swarm.rare == RareSize::many_documents) return c.pick<std::int64_t>({320, 512});
  if (swarm.rare == RareSize::buckets_at_powers_of_two) return c.pick<std::int64_t>({96, 160});
  if (swarm.rare == RareSize::many_layers || swarm.rare == RareSize::ends_of_the_vocabulary)
    lengths = {17, 32};
  std::erase_if(lengths,
                [&](std::int64_t length) { return length != 17 && passes * length > most_rows; });
  return c.pick(lengths);
}

// Rows between documents; at least one document of two tokens has room.
void draw_gaps(Choices& c, Scenario::Data& d) {
  d.gaps = c.one_in(6) ? c.between(4, 20) : c.between(0, 3);
  d.align = c.pick<std::int64_t>({1, 2, 4, 8, 32});
  d.tail = c.one_in(2) ? Tail::append_dummy_seq : Tail::extend_last;
  if (longest_fitting(d) < 2) d.gaps = 0;
  if (longest_fitting(d) < 2) d.align = 1;
}

void draw_masks(Choices& c, Scenario& s) {
  Scenario::Data::Mask& mask = s.data.mask;
  mask.prefix = c.one_in(8) ? c.between(4, 40) : c.between(0, 3);
  mask.rate = Ratio{c.pick<std::int64_t>({0, 300'000, 900'000, c.between(1, 999'999)})};
  const std::int64_t all = most_microbatches(s.training) * s.parallel.data;
  if (all == 1 || !c.one_in(2)) return;
  for (std::int64_t next = c.between(0, all - 1); next < all; next += 1 + c.between(0, all)) {
    mask.microbatches.push_back(next);
  }
}

void draw_lists(Choices& c, const Swarm& swarm, Scenario& s) {
  if (swarm.truncation) s.data.long_documents = LongDocuments::truncate;
  s.data.documents.clear();
  const std::int64_t layouts = c.between(1, 3);
  for (std::int64_t step = 0; step < layouts; ++step) {
    s.data.documents.emplace_back();
    do {
      s.data.documents.back().push_back(draw_documents(c, s, swarm));
    } while (s.data.documents.back().size() < 4 && c.one_in(2));
  }
}

void draw_histogram(Choices& c, std::int64_t rows, std::vector<std::vector<std::int64_t>>& pairs) {
  std::int64_t documents = c.between(0, 3);
  do {
    pairs.push_back({documents, c.between(1, 9)});
    documents += c.between(1, 1 + rows / 4);
  } while (pairs.size() < 4 && c.one_in(2));
}

// Lists that the reader draws: what the schema says of a shape, and no list in the file.
void draw_distribution(Choices& c, const Swarm& swarm, Scenario& s) {
  const std::int64_t rows = s.data.pack_length;
  s.data.kind = DataKind::distribution;
  Scenario::Data::Distribution& d = s.data.distribution;
  d.shape = c.pick<Shape>({Shape::uniform, Shape::lognormal, Shape::equal, Shape::one_giant,
                           Shape::many_tiny, Shape::measured, Shape::published, Shape::histogram});
  if (d.shape == Shape::histogram) draw_histogram(c, rows, d.histogram);
  d.min = c.one_in(3) ? c.between(0, rows) : c.pick<std::int64_t>({1, 0, 2});
  d.max = c.one_in(2) ? rows : c.between(d.min, rows);
  d.median = c.between(1, rows);
  d.sigma = Ratio{c.pick<std::int64_t>({1'000'000, 0, 500'000, 4'000'000})};
  if (swarm.empties)
    d.empty = Ratio{c.pick<std::int64_t>({100'000, 500'000, c.between(0, 600'000)})};
  d.fill = Ratio{c.pick<std::int64_t>({900'000, 1'000'000, c.between(100'000, 1'000'000)})};
  d.seed = draw_seed(c, swarm);
}

bool has_target(const Scenario& s) {
  const auto data = open_data(s);
  for (std::int64_t step = 0; step < s.training.steps; ++step) {
    if (data->training(step).targets > 0) return true;
  }
  return false;
}

}  // namespace

void draw_data(Choices& c, const Swarm& swarm, Scenario& s) {
  s.data.pack_length = draw_pack_length(c, swarm, s);
  if (swarm.bf16) s.data.pack_length -= s.data.pack_length % 16;  // L03: 17 rows become 16.
  if (swarm.gaps) draw_gaps(c, s.data);
  if (swarm.masks) draw_masks(c, s);
  if (swarm.distribution) {
    draw_distribution(c, swarm, s);
  } else {
    draw_lists(c, swarm, s);
  }
  if (has_target(s)) return;
  s.data.mask = {};  // L12: a document of two tokens that nothing masks.
  s.data.gaps = 0;
  s.data.align = 1;
  s.data.distribution = {};
  if (s.data.kind == DataKind::distribution) s.data.documents = {{{}}};
  s.data.kind = DataKind::lengths;
  s.data.documents[0][0] = {2};
}

}  // namespace lockstep
