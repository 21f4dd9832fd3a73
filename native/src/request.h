// The loop of one request: reserve, draft, verify, accept, compact, emit, commit. Decoding without a draft is the same
// with none drafted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "accept.h"
#include "controller.h"
#include "engine.h"
#include "pilotfish.h"
#include "random_stream.h"
#include "token_chooser.h"
#include "tree_shape.h"

namespace pilotfish {

class Request {
 public:
  // Books cache blocks for the prompt and max_new_tokens, or as many of them as the context holds. The request keeps
  // the engine alive, beside the engine's own handle.
  Request(std::shared_ptr<Engine> engine, std::span<const int32_t> ids, const pf_generate_options& options);
  Request(Request&&) = delete;
  ~Request();

  // Writes the tokens of one round, at most num_draft_tokens + 1; `finish` is the reason if these were the last ones.
  size_t step(std::span<pf_token> tokens_out, pf_finish& finish);
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  const pf_stats& stats() const noexcept { return stats_; }

 private:
  using Clock = std::chrono::steady_clock;

  size_t first_token(std::span<pf_token> tokens_out);
  size_t round(std::span<pf_token> tokens_out);
  TreeLimits limits_of_round();
  // Fills a cleared draft; false if the request was cancelled meanwhile.
  bool draft(Draft& out);
  // These take the draft from the workspace.
  Accepted accept(const Logits& target);
  int32_t compact_caches(const Accepted& accepted);
  // Appends the accepted tokens and the one after them, up to whatever ends the request.
  size_t emit(const Logits& target, const Accepted& accepted, std::span<pf_token> tokens_out);
  pf_finish finish_after(int32_t id) const;

  // Both of the engine handle and of this request; whichever closes last destroys the engine.
  std::shared_ptr<Engine> engine_;
  const TreeShape shape_;
  const TypicalOptions typical_;
  const std::vector<float> draft_temperatures_;
  const int32_t max_new_tokens_;
  const bool reuses_prefix_;
  TokenChooser chooser_;
  const RandomStream random_;
  std::optional<DraftController> controller_;  // none: always the whole shape
  std::vector<int32_t> eos_ids_;               // empty if they are ignored
  std::vector<int32_t> stop_ids_;
  std::vector<int32_t> tokens_;  // the prompt and what was emitted
  int32_t max_tokens_;           // prompt and output end here
  std::optional<Engine::OpenSequence> sequence_;
  std::atomic<bool> cancelled_{false};
  bool failed_ = false;
  pf_finish finish_ = PF_FINISH_NONE;
  pf_stats stats_{};
  Clock::time_point opened_;
};

}  // namespace pilotfish
