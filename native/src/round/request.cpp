#include "round/request.h"

#include <algorithm>
#include <new>

#include "base/pass_limits.h"
#include "base/status.h"
#include "sampling/sampling_options.h"

namespace pilotfish {

Request::Request(std::shared_ptr<Engine> engine, std::span<const int32_t> ids, const pf_generate_options& options)
    : engine_(std::move(engine)),
      typical_{options.typical_epsilon, options.typical_delta},
      max_new_tokens_(options.max_new_tokens),
      reuses_prefix_(options.reuse_prefix == 1),
      echoes_(options.echo == 1),
      max_tokens_(static_cast<int32_t>(
          std::min<int64_t>(engine_->max_context(), int64_t(ids.size()) + options.max_new_tokens))),
      chooser_(sampling_options(options), engine_->workspace().sampler, processor_options(options, engine_->eos_ids()),
               {int32_t(ids.size()), max_tokens_, engine_->num_ids()}),
      report_(engine_->workspace().sampler, engine_->num_ids(), options.num_top_logprobs,
              engine_->target().limits().max_outputs),
      random_(options.seed),
      device_settings_(engine_->chooses_on_device(options) ? std::optional(DeviceRound::settings_of(options))
                                                           : std::nullopt),
      tokens_(ids.begin(), ids.end()),
      speculation_(*engine_, options, static_cast<int32_t>(ids.size()), max_tokens_),
      opened_(Clock::now()) {
  const int32_t max_context = engine_->max_context();
  engine_->check_ids(ids);
  check_option_ids(options, engine_->num_ids());
  if (ids.size() >= static_cast<size_t>(max_context)) {
    fail(PF_CONTEXT_FULL, "the prompt has ", ids.size(), " tokens, the context holds ", max_context,
         " and one must be left for the output");
  }
  if (options.ignore_eos == 0) eos_ids_.assign(engine_->eos_ids().begin(), engine_->eos_ids().end());
  stop_ids_.assign(options.stop_ids, options.stop_ids + options.num_stop_ids);
  tokens_.reserve(max_tokens_);
  stats_.struct_size = sizeof stats_;
  stats_.lossy = typical_.epsilon > 0 ? 1 : 0;
  stats_.num_prompt_tokens = static_cast<int32_t>(ids.size());
  const std::lock_guard lock(engine_->mutex());
  // Rows of rejected siblings need slots too, where the context has them; and rows that a device's round has for all
  // who share it, whatever the output of this one still needs.
  const bool shares_chains = device_settings_ && max_together(engine_->options()) > 1;
  const TreeLimits limits = speculation_.limits();
  const int32_t num_more = std::max(speculation_.max_slots() - limits.max_depth, shares_chains ? limits.max_tokens : 0);
  const int32_t max_slots = std::min(max_context, max_tokens_ + num_more);
  // The last token of the prompt always runs: its logits are needed. An echo needs those of all.
  const bool adopts = reuses_prefix_ && !echoes_;
  const PrefixTree::Match prefix = engine_->find_prefix(std::span(tokens_).first(adopts ? tokens_.size() - 1 : 0));
  sequence_.emplace(*engine_, max_slots, prefix, speculation_.num_own_blocks(prefix));
  speculation_.adopt(*sequence_);
}

// What is committed is right, also of a request that was cancelled or has failed; a head's state is not known then.
Request::~Request() {
  const std::lock_guard lock(engine_->mutex());
  room_.reset();
  if (sequence_) speculation_.remember();
  if (!failed_) engine_->remember(std::span<const int32_t>(tokens_).subspan(stats_.num_prompt_tokens));
  if (sequence_ && reuses_prefix_) {
    if (!failed_) {
      guard([&] { speculation_.end_head(tokens_, sequence_->block_table()); });
      sequence_->set_num_head_tokens(speculation_.num_head_retained(*sequence_));
    }
    sequence_->retain(tokens_);
  }
  sequence_.reset();
}

void Request::stop(size_t num_tokens) {
  const std::lock_guard lock(engine_->mutex());
  const size_t num_written = last_step_.num_tokens, num_new = last_step_.num_new_tokens;
  if (failed_ || num_tokens > num_written || num_written - num_tokens >= num_new) {
    fail(PF_INVALID_ARGUMENT, "num_tokens is ", num_tokens, ": the last step wrote ", last_step_.num_tokens, ", ",
         last_step_.num_new_tokens, " of them new, and one of these must be kept");
  }
  const auto num_dropped = static_cast<int32_t>(num_written - num_tokens);
  // Accepted tokens come first, the target's own one last.
  const int32_t num_kept_new = last_step_.num_new_tokens - num_dropped;
  stats_.num_accepted -= last_step_.num_accepted - std::min(last_step_.num_accepted, num_kept_new);
  stats_.num_new_tokens -= num_dropped;
  tokens_.resize(tokens_.size() - static_cast<size_t>(num_dropped));
  const auto most_cached = static_cast<int32_t>(tokens_.size()) - 1;
  const int32_t num_target = std::min(sequence_->num_target_tokens(), most_cached);
  const int32_t num_draft = std::min(sequence_->num_draft_tokens(), most_cached);
  Reservation(*sequence_, std::max(num_target, num_draft)).commit(num_target, num_draft);
  report_.keep(num_tokens);
  last_step_ = {};
  finish_ = PF_FINISH_STOP;
}

void Request::fail_step(const char* message) noexcept {
  room_.reset();
  forget_step();
  try {
    error_ = message;
  } catch (const std::bad_alloc&) {
    error_.clear();
  }
}

pf_decision Request::decision() const noexcept {
  const RoundPlan& plan = speculation_.decision();
  const std::span<const int8_t> ranks = speculation_.accepted_ranks();
  pf_decision found{.struct_size = sizeof(pf_decision),
                    .reason = static_cast<int32_t>(plan.reason),
                    .num_lookup = plan.num_lookup,
                    .num_model = plan.source == Source::kDraft ? plan.num_draft : 0,
                    .expected_tokens = plan.tokens,
                    .expected_seconds = plan.seconds,
                    .num_head = plan.source == Source::kHead ? plan.num_draft : 0,
                    .num_levels = plan.num_levels,
                    .num_passes = speculation_.num_passes(),
                    .num_verified = speculation_.num_verified(),
                    .num_accepted = static_cast<int32_t>(ranks.size()),
                    .ranks = {}};
  std::copy(ranks.begin(), ranks.end(), found.ranks);
  return found;
}

}  // namespace pilotfish
