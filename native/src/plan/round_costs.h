// What a pass of each model takes on this machine, by rows and context. Plain numbers: calibration.h measures them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/token_tree.h"

namespace pilotfish {

// Seconds of passes of one model, measured at some row counts and two context lengths, linear in between and beyond.
struct PassCosts {
  std::vector<int32_t> rows;                   // ascending, at least one
  std::array<int32_t, 2> contexts;             // ascending
  std::array<std::vector<double>, 2> seconds;  // [contexts][rows]

  double at(int32_t num_rows, int32_t context) const noexcept;
  // Makes a pass of more rows cost no less than one of fewer, changing as little as possible in the sense of least
  // squares: what was measured the other way round was noise.
  void smooth();
};

// Of a source of drafts that runs a model: a small language model, or a head of the target.
struct DraftCosts {
  PassCosts begin;           // the first pass of a round, over num_rows tokens that the source has not read yet
  PassCosts level;           // a further one, which continues num_rows drafted tokens
  int32_t begin_levels = 1;  // levels of a tree that the first pass gives; a further one gives the next

  // By the bytes of the weights that a pass reads. A further row costs 0.08 of a pass of one row.
  static DraftCosts guess(uint64_t pass_bytes);
  // What `levels` levels of `width` tokens take, the first pass over num_behind tokens among them.
  double drafting(int32_t num_behind, int32_t levels, int32_t width, int32_t context) const noexcept;
};

struct RoundCosts {
  PassCosts verify;
  std::optional<DraftCosts> draft, head;  // none: the bundle has no such source
  // Of the target, over one row of each of so many sequences; none: they take what as many rows of one take.
  std::optional<PassCosts> together = {};
  bool is_measured = false;  // false: guessed from the bytes of the weights

  // Of a source that runs a model.
  const std::optional<DraftCosts>& of(Source source) const noexcept { return source == Source::kHead ? head : draft; }
  // A pass over rows_each rows of each of num_sequences sequences.
  double verifying(int32_t num_sequences, int32_t rows_each, int32_t context) const noexcept;

  // Passes are to each other as the bytes that they read. 0 bytes: no draft model.
  static RoundCosts guess(uint64_t target_pass_bytes, uint64_t draft_pass_bytes);
};

}  // namespace pilotfish
