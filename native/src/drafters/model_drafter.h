// Drafts a chain with a small model that shares the target's vocabulary and has a cache of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "draft.h"
#include "model.h"
#include "random_stream.h"
#include "token_chooser.h"

namespace pilotfish {

struct DraftRequest {
  std::span<const int32_t> tokens;       // the sequence so far
  std::span<const int32_t> block_table;  // covers it and num_tokens more
  int32_t num_cached;                    // of them in the draft's cache; fewer than tokens.size()
  int32_t num_tokens;                    // to draft at most, at least 1
  float least_confidence;                // stop after the token that takes the product of confidences below it
  TokenChooser& chooser;
  const RandomStream& random;
  const std::atomic<bool>& cancelled;
};

class ModelDrafter {
 public:
  // Ids from num_ids on are padding, and ids from the model's num_logits on are not scored: neither is ever drafted.
  // `model` must outlive the drafter.
  ModelDrafter(Model& model, int32_t num_ids, int32_t prefill_chunk)
      : model_(model), num_ids_(std::min(num_ids, model.num_logits())), prefill_chunk_(prefill_chunk) {}

  // Catches up with the sequence and drafts. Afterwards all but the last drafted token are in the draft's cache. False
  // if the request was cancelled meanwhile.
  bool propose(const DraftRequest& request, Draft& out);

 private:
  struct Choice {
    int32_t id;
    float confidence;  // the draft's probability of its likeliest token, a fair guess of the acceptance rate
  };

  Choice choose(const DraftRequest& request, const Logits& logits, int32_t index, Draft& out) const;

  Model& model_;
  const int32_t num_ids_;
  const int32_t prefill_chunk_;
};

}  // namespace pilotfish
