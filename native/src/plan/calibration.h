// Measures what passes cost on this machine, once: the numbers are kept in a file for the next load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/round_costs.h"

namespace pilotfish {

// Where the costs of a load are kept. The key says for what they hold: machine, library, bundle and options.
struct CalibrationFile {
  std::filesystem::path folder;  // empty: they are kept nowhere
  std::string key;

  std::filesystem::path path() const;
};

// What the numbers of a machine depend on besides the bundle: its processor, the instruction set of the kernels, and
// the library, by its hash.
std::string describe_build_and_machine();

// How to run passes: of `num_rows` rows after `context` tokens.
using TimedPass = std::function<void(int32_t num_rows, int32_t context)>;

// Of a source of drafts that runs a model.
struct TimedSource {
  TimedPass begin;  // its first pass of a round
  TimedPass level;  // a further one; empty: it has none
  // Run before each first pass, not timed: what a pass of the target leaves in the processor's caches is nothing of the
  // source's weights. Empty: nothing is run.
  TimedPass before = {};
  int32_t num_levels = 1;    // further passes that `level` runs one after the other
  int32_t begin_levels = 1;  // of a tree, that the first pass gives
  int32_t most_begun;        // rows of a first pass
  int32_t most_continued;    // rows of a further one
};

struct TimedPasses {
  TimedPass verify;
  int32_t most_verified;                    // rows
  std::vector<int32_t> verified_rows = {};  // that are measured, ascending to most_verified; empty: the usual ones
  TimedPass together = {};                  // over one row of each of num_rows sequences; empty: none share passes
  int32_t most_together = 1;                // sequences
  int32_t max_context;                      // rows included, of all models
  std::optional<TimedSource> draft, head;
};

// Takes under a second where a pass takes milliseconds, and at least one sweep over a few row counts otherwise.
RoundCosts measure_costs(const TimedPasses& passes);

// The kept costs; nothing if there are none for this key, or the file is damaged: it is a cache.
std::optional<RoundCosts> read_costs(const CalibrationFile& file);
// Does not fail where the folder cannot be written: the next load measures again.
void keep_costs(const CalibrationFile& file, const RoundCosts& costs) noexcept;

}  // namespace pilotfish
