// One request: its sequence, and the stages of its rounds (round.h). Decoding without a draft is the same with none
// drafted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/tree_pass.h"
#include "pilotfish.h"
#include "round/accept.h"
#include "round/speculation.h"
#include "sampling/logprob_report.h"
#include "sampling/random_stream.h"
#include "sampling/token_chooser.h"

namespace pilotfish {

class Request {
 public:
  // Books cache blocks for the prompt and max_new_tokens, or as many of them as the context holds. The request keeps
  // the engine alive, beside the engine's own handle.
  Request(std::shared_ptr<Engine> engine, std::span<const int32_t> ids, const pf_generate_options& options);
  Request(Request&&) = delete;
  ~Request();

  // The stages of a step, in their order, under the engine's mutex. But for the first, each does nothing unless the one
  // before it has led to it: a prompt that runs, a cancel or an end leave nothing to do for those after it.
  //
  // `draft` is the one of the workspace's to use.
  void begin(std::span<pf_token> tokens_out, int32_t draft);
  // Runs the prompt, if it has not run yet, most_rows tokens of it a pass; one pass with `in_chunks`.
  void prefill(bool in_chunks, int32_t most_rows);
  void plan(const PassShare& share);
  // Once more, where others that share the round planned otherwise.
  void replan(const PassShare& share);
  // But for what a model or head drafts, in passes that requests share: then it awaits() one, and goes on in
  // end_draft().
  void draft();
  bool awaits(Source source) const noexcept { return stage_ == Stage::kDrafting && speculation_.awaits() == source; }
  Proposal proposal() noexcept { return {.request = speculation_.request(round_so_far()), .out = &drafted()}; }
  struct Drafted {
    bool is_cancelled;
    int32_t num_sharing;  // requests that drafted in the same passes
    double seconds;
  };
  void end_draft(const Drafted& outcome);
  struct Verified {
    Logits logits;      // from the request's rows on
    int32_t first_row;  // of the pass that verified, the rows of this request
    double seconds;
  };
  void verify(const Verified& pass);
  struct DeviceVerified {
    const RoundOutcome& outcome;
    int32_t first_row;    // of the round's hidden rows
    int32_t num_sharing;  // requests
    int32_t most;         // tokens that each drafted
    double seconds;       // from the first pass of a head on
  };
  // In place of a pass of the host's, where the device chooses the tokens: in a round of the request's own, or in one
  // that it has `shared` with others.
  void verify_on_device(const DeviceVerified* shared = nullptr);
  // The same where others have their rows in the pass that verified; the outcome has those of all.
  struct SharedVerified {
    const RoundOutcome& outcome;
    int32_t first_row;
    double seconds;
  };
  void verify_on_device(const SharedVerified& shared);
  // What the device is told of a request whose rows it verifies with those of others.
  RoundSettings settings_of_round() const noexcept;
  // Whether the round drafts on the device, and with whom it can be shared: tokens that it drafts, and those that it
  // has room for, which others may need; and the levels of a tree.
  struct DraftToShare {
    Source source;
    int32_t num_drafted;
    int32_t most;
    int32_t num_levels = 0;  // 0: a chain
  };
  std::optional<DraftToShare> draft_to_share() const noexcept;
  // With no more than `most` drafted tokens; and what a head's first pass reads of it.
  DeviceRound::Member member_of_round(int32_t most) const noexcept;
  // Whether all that is to verify is the sequence's last token.
  bool is_plain() const noexcept { return drafted().tree.size() == 0; }
  HeadBegin head_begin() noexcept { return speculation_.head_begin(round_so_far()); }
  void take_back_head() noexcept { speculation_.take_back_chain(); }
  void accept();
  void emit();

  // Whether there is something to verify, and what.
  bool has_drafted() const noexcept { return stage_ == Stage::kDrafted; }
  TreePass rows_to_verify() const noexcept { return TreePass::of(tokens_.back(), drafted().tree); }
  int32_t num_rows_to_verify() const noexcept { return drafted().tree.size() + 1; }
  // Of a planned round of a device that others may share: what the request brings into it, where all of them decide
  // together what they draft; and whether it drafts nothing in any case.
  const Sharer* sharer() const noexcept;
  bool is_plain_on_device() const noexcept;
  // Of a planned round, before it has drafted.
  int32_t num_rows_expected() const noexcept {
    return stage_ == Stage::kPlanned ? speculation_.num_rows_expected() : 0;
  }
  bool chooses_on_device() const noexcept { return device_settings_.has_value(); }
  // Whether its rounds are among those that requests share: on a device, those that it makes by itself.
  bool shares_rounds() const noexcept { return !engine_->device_round() || chooses_on_device(); }
  size_t num_written() const noexcept { return num_written_; }
  pf_finish finish() const noexcept { return finish_; }
  // After a stage that threw; `message` is for error(). Only a request that begin() refused can go on.
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
  // Of the step that failed.
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

  enum class Stage { kNone, kBegun, kPlanned, kDrafting, kDrafted, kVerified, kAccepted };

  // What a step wrote.
  struct Written {
    size_t num_tokens = 0;
    int32_t num_new_tokens = 0;
    int32_t num_accepted = 0;
  };

  // What the target made of a draft. A round on the device gives the accepted tokens, and the log-probabilities of the
  // tokens that follow its rows in place of their logits.
  struct Verdict {
    Accepted accepted;
    std::optional<Logits> logits;
    std::span<const float> logprobs;
    int32_t first_row = 0;  // of the pass's hidden rows
  };

  bool is_live() const noexcept { return finish_ == PF_FINISH_NONE && !failed_ && !cancelled_; }
  // A step that writes no token leaves nothing of the one before it to report or to stop in.
  void forget_step() noexcept;
  void finish_step();
  void cancel_step();

  // Of a prompt.
  size_t first_token(bool in_chunks, int32_t most_rows);
  size_t run_chunk(int32_t end);
  size_t echo_prompt();
  // Logits [num_rows] of the prompt's tokens after the first num_cached.
  Logits run_prompt(int32_t num_cached, int32_t num_rows);
  // The target's choice after the prompt.
  size_t emit_first(const Logits& logits, size_t num_before);

  // Rows that the cache still has slots for, and tokens that the output needs besides the target's own.
  TreeLimits room_of_round() const noexcept;
  // Slots behind the sequence for the rows of a round.
  int32_t num_slots(const Draft& drafted) const noexcept;
  // What the round drafts, in the workspace.
  Draft& drafted() const noexcept { return engine_->workspace().drafts[draft_]; }
  // What drafting reads.
  Speculation::Round round_so_far() noexcept;
  Accepted accepted_of(const Logits& target);
  // Hands the streams of the rows behind what a round emitted to the head.
  void observe(const Verdict& verdict, int32_t num_emitted);
  int32_t compact_caches(const Accepted& accepted);
  // Appends the accepted tokens and the one after them, up to whatever ends the request.
  size_t emit_tokens(const Verdict& verdict, std::span<pf_token> tokens_out);
  pf_finish finish_after(int32_t id) const;

  // Of rounds whose tokens a device chooses: whether it drafts them too, a chain or a tree.
  bool drafts_on_device() const noexcept;
  bool grows_on_device() const noexcept;
  DeviceRound::Chain planned_chain() const noexcept;
  // By the device's clock. A head's first pass was started before that was read: of the `seconds` that the host has
  // waited from there on, all that the verification has not taken went into the draft.
  void count_seconds(const RoundOutcome& outcome, Source source, double seconds);
  Verdict draft_and_verify_on_device();
  Verdict verify_drafted_on_device();
  Verdict take_part_of(const DeviceVerified& shared);
  // Of what the device has drafted; the residual streams are those of rows first_row and on.
  Verdict verdict_of(const RoundOutcome& outcome, const DeviceRound::Chain& chain, int32_t first_row);
  // The last rounds of an output have too few slots for some of the lengths that a round of its own is padded to. What
  // is verified does not depend on who shares the round.
  void fit_to_slots();

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
  Stage stage_ = Stage::kNone;
  std::optional<Verdict> verdict_;  // of the round
  Written last_step_;
  Written before_step_;  // what all steps before the one that runs wrote
  pf_finish finish_ = PF_FINISH_NONE;
  pf_stats stats_{};
  Clock::time_point opened_;
};

}  // namespace pilotfish
