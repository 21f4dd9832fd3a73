// What drafts with a head of the target: it reads the target's residual streams, pass by pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "memory/float_rows.h"
#include "model/hidden_rows.h"
#include "model/kv_cache.h"
#include "model/likely_rows.h"

namespace pilotfish {

// What a head keeps of one request's sequence between its rounds.
struct HeadState {
  // [num_taps, max_rows, hidden_size] of the rows of the target that the head has not read yet.
  std::unique_ptr<FloatRows> streams;
  int32_t position = 0;  // in the sequence of the first of them; a cache of the head's has the rows before
  int32_t num_rows = 0;
  int32_t num_begun = 0;  // that the last pass has read, where it left none: `streams` has them still

  // Before that pass, which came to nothing, runs once more.
  void take_back() noexcept {
    position -= num_begun;
    num_rows += num_begun;
    num_begun = 0;
  }
};

// Rows of a pass of the target whose tokens are in the sequence.
struct HeadRows {
  const Hidden& hidden;
  std::span<const int32_t> rows;    // of `hidden`, in the order of the sequence
  int32_t position;                 // of the first of them in the sequence
  std::span<const int32_t> tokens;  // the sequence, with what the pass added to it
  std::span<const int32_t> block_table;
};

// What the first pass of a round reads of one sequence.
struct HeadBegin {
  HeadState* state;
  std::span<const int32_t> tokens;  // the sequence so far
  std::span<const int32_t> block_table;
};

class HeadDrafter : public Drafter {
 public:
  // Whether observe() is to see every token of the sequence, and not just the last one of each pass.
  virtual bool reads_all_rows() const noexcept = 0;
  // Levels of a tree that it can draft.
  virtual int32_t max_depth() const noexcept = 0;
  // Levels that the first pass of a round gives.
  virtual int32_t begin_levels() const noexcept = 0;
  // A state with room for everything that a request of max_tokens needs.
  virtual HeadState make_state(int32_t max_tokens) const = 0;
  // After each pass of the target over tokens of the request's sequence.
  virtual void observe(const HeadRows& pass, HeadState& state) = 0;
  // Brings the cache of a head that has one as far as the tokens of the sequence and the rows observed allow.
  virtual void catch_up(const HeadBegin&) {}
  // The cache of a head that has one, whose slots are those of the target's; nullptr otherwise.
  virtual KvCache* cache() noexcept { return nullptr; }

  // A head whose levels are passes of one model can draft in a round on a device: its model, and the first pass of one
  // sequence or several, whose outputs are in their order and which is started without waiting for it. Of other heads
  // there is none.
  virtual RoundModel step() noexcept { return {}; }
  virtual void begin_on_device(std::span<const HeadBegin>) {}

  // For calibration: the passes of a round, over whatever the buffers hold.
  virtual void run_begin(int32_t num_rows, int32_t context, std::span<const int32_t> block_table) = 0;
  virtual void run_level(int32_t num_rows, int32_t context, std::span<const int32_t> block_table) = 0;
};

}  // namespace pilotfish
