// The loop of one request: reserve, draft, verify, accept, compact, emit, commit. Decoding without a draft is the same
// with none drafted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accept.h"
#include "engine.h"
#include "model/tree_pass.h"
#include "pilotfish.h"
#include "sampling/logprob_report.h"
#include "sampling/random_stream.h"
#include "sampling/token_chooser.h"
#include "speculation.h"

namespace pilotfish {

class Request {
 public:
  // Books cache blocks for the prompt and max_new_tokens, or as many of them as the context holds. The request keeps
  // the engine alive, beside the engine's own handle.
  Request(std::shared_ptr<Engine> engine, std::span<const int32_t> ids, const pf_generate_options& options);
  Request(Request&&) = delete;
  ~Request();

  // Writes the tokens of one round; `finish` is the reason if these were the last ones.
  size_t step(std::span<pf_token> tokens_out, pf_finish& finish);

  // The same in parts, for requests that share a pass (batch.h). The engine's mutex is held throughout.
  struct Place {
    int32_t draft = 0;  // of the workspace's, the one to use
    PassShare share = {};
    bool in_chunks = false;  // one chunk of a prompt a step, all but the last of which write nothing
  };
  // Does everything, or all up to the verification of what it drafted: true if that is missing.
  bool begin_step(std::span<pf_token> tokens_out, const Place& place);
  TreePass rows_to_verify() const noexcept;
  struct Verified {
    const Logits& logits;  // of the pass that verified
    int32_t first_row;     // of it, the rows of this request
    double seconds;
  };
  void end_round(const Verified& pass);
  size_t num_written() const noexcept { return num_written_; }
  pf_finish finish() const noexcept { return finish_; }
  // Why a part threw, for error().
  void fail_step(const char* message) noexcept;
  // Whether the next step drafts, and does not run the prompt.
  bool drafts_next() const noexcept { return is_live() && stats_.num_new_tokens > 0; }
  bool runs_prompt_next() const noexcept { return is_live() && stats_.num_new_tokens == 0; }
  // In place of a step, which others come before: nothing is written.
  void skip_step() noexcept { forget_step(); }
  bool reads_hidden() const noexcept { return speculation_.reads_hidden(); }
  std::span<const int32_t> block_table() const noexcept { return sequence_->block_table(); }
  int32_t context() const noexcept { return static_cast<int32_t>(tokens_.size()) - 1; }
  Engine& engine() const noexcept { return *engine_; }
  // Of the last step that failed in a batch.
  const char* error() const noexcept { return error_.c_str(); }

  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  // Ends the request after the first num_tokens of the last step.
  void stop(size_t num_tokens);
  const LogprobReport& report() const noexcept { return report_; }
  const pf_stats& stats() const noexcept { return stats_; }
  // About the last round.
  pf_decision decision() const noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  // What a step wrote.
  struct Step {
    size_t num_tokens = 0;
    int32_t num_new_tokens = 0;
    int32_t num_accepted = 0;
  };

  bool is_live() const noexcept { return finish_ == PF_FINISH_NONE && !failed_ && !cancelled_; }
  size_t first_token(std::span<pf_token> tokens_out, bool in_chunks);
  size_t echo_prompt(std::span<pf_token> tokens_out);
  // Logits [num_rows] of the prompt's tokens after the first num_cached.
  Logits run_prompt(int32_t num_cached, int32_t num_rows);
  // As begin_step().
  bool begin_round(const PassShare& share);
  // Rows that the cache still has slots for, and tokens that the output needs besides the target's own.
  TreeLimits room_of_round() const noexcept;
  // What the target made of a draft. A round on the device gives the log-probabilities of the tokens that follow its
  // rows in place of their logits.
  struct Verdict {
    Accepted accepted;
    std::optional<Logits> logits;
    std::span<const float> logprobs;
    int32_t first_row = 0;  // of the pass's hidden rows
  };
  // None if the request was cancelled meanwhile.
  std::optional<Verdict> decide_on_device();
  // A step that writes no token leaves nothing of the one before it to report or to stop in.
  void forget_step() noexcept;
  // After a failure.
  void abandon_step() noexcept;
  // Accepts, emits and commits.
  void finish_round(const Verdict& verdict);
  void finish_step();
  // What the round drafts, in the workspace.
  Draft& draft() const noexcept { return engine_->workspace().drafts[draft_]; }
  bool runs_on_device() const noexcept;
  bool grows_on_device() const noexcept;
  Verdict verify_on_device(Draft& drafted);
  // Slots behind the sequence for the rows of a round.
  int32_t num_slots(const Draft& drafted) const noexcept;
  // What drafting reads.
  Speculation::Round round_so_far() noexcept;
  Accepted accept(const Logits& target);
  // Hands the streams of the rows behind what a round emitted to the head.
  void observe(const Verdict& verdict, int32_t num_emitted);
  int32_t compact_caches(const Accepted& accepted);
  // Appends the accepted tokens and the one after them, up to whatever ends the request.
  size_t emit(const Verdict& verdict, std::span<pf_token> tokens_out);
  pf_finish finish_after(int32_t id) const;

  // Both of the engine handle and of this request; whichever closes last destroys the engine.
  std::shared_ptr<Engine> engine_;
  const TypicalOptions typical_;
  const int32_t max_new_tokens_;
  const bool reuses_prefix_;
  const bool echoes_;
  const int32_t max_tokens_;  // prompt and output end here
  TokenChooser chooser_;
  LogprobReport report_;
  const RandomStream random_;
  const std::optional<RoundSettings> device_settings_;  // none: the tokens are chosen on the host
  std::vector<int32_t> eos_ids_;                        // empty if they are ignored
  std::vector<int32_t> stop_ids_;
  std::vector<int32_t> tokens_;  // the prompt and what was emitted
  Speculation speculation_;
  std::optional<Engine::OpenSequence> sequence_;
  std::atomic<bool> cancelled_{false};
  std::optional<Reservation> room_;  // of the round
  int32_t draft_ = 0;
  std::span<pf_token> tokens_out_;  // of the step
  size_t num_written_ = 0;
  std::string error_;
  bool failed_ = false;
  int32_t num_echoed_ = 0;      // tokens of the prompt that steps have written
  int32_t num_prefilled_ = -1;  // tokens of the prompt that the target has run, or need not; -1: none so far
  Step last_step_;
  Step before_step_;  // what all steps before the one that runs wrote
  pf_finish finish_ = PF_FINISH_NONE;
  pf_stats stats_{};
  Clock::time_point opened_;
};

}  // namespace pilotfish
