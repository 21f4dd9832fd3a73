#include "round/speculation.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/status.h"
#include "base/timer.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "engine/options.h"
#include "round/draft_choice.h"
#include "sampling/sampling_options.h"

namespace pilotfish {
namespace {

int32_t& counter_of(Source source, int32_t& lookup, int32_t& model, int32_t& head) {
  return source == Source::kLookup ? lookup : source == Source::kHead ? head : model;
}

void count_tokens(const TokenTree& tree, std::span<const int32_t> accepted, pf_stats& stats) {
  const int32_t num_looked_up = stats.num_lookup_drafted;
  for (const TreeToken& token : tree.tokens()) {
    ++counter_of(token.source, stats.num_lookup_drafted, stats.num_model_drafted, stats.num_head_drafted);
  }
  for (const int32_t index : accepted) {
    ++counter_of(tree[index].source, stats.num_lookup_accepted, stats.num_model_accepted, stats.num_head_accepted);
  }
  stats.num_lookup_rounds += stats.num_lookup_drafted > num_looked_up ? 1 : 0;
}

// A chain of a model or head. What the controller plans and trees are chosen by what was drafted, which would bias an
// acceptance that takes their tokens for draws.
bool draws_tokens(const pf_generate_options& options, const DraftChoice& choice, int32_t acceptance) {
  return acceptance == PF_ACCEPT_REJECTION && !is_greedy(options) && options.typical_epsilon == 0 && !choice.is_auto &&
         !choice.is_tree && (choice.draft || choice.head);
}

// A head whose cache is to have what the target's has: one that drafts, or that later requests may draft with.
bool keeps_head(const pf_generate_options& options, const DraftChoice& choice, Engine& engine) {
  const bool leaves_cache = options.reuse_prefix == 1 && engine.head_drafter() && engine.head_drafter()->cache();
  return choice.head || leaves_cache;
}

}  // namespace

DraftWindow DraftWindow::of(int32_t wanted, int32_t max_positions) noexcept {
  const int32_t most = wanted == 0 ? max_positions : std::min(wanted, max_positions);
  // A quarter, so that beginning anew is rare and cheap: each token is read about 1.3 times.
  const int32_t fresh = std::max(most / 4 / kBlockSize, 1) * kBlockSize;
  return {most, wanted == 0 ? max_positions : fresh};
}

Speculation::Speculation(Engine& engine, const pf_generate_options& options, int32_t num_prompt_tokens,
                         int32_t max_tokens)
    : engine_(engine),
      choice_(draft_choice(options, engine)),
      draws_(draws_tokens(options, choice_, engine.options().acceptance)),
      keeps_head_(keeps_head(options, choice_, engine)),
      max_tokens_(max_tokens),
      controller_(engine.costs(), choice_, max_tokens - num_prompt_tokens, num_prompt_tokens) {
  if (choice_.lookup) lookup_.emplace(max_tokens, engine.lookup_texts());
  if (keeps_head_) head_state_ = engine.head_drafter()->make_state(max_tokens);
  if (choice_.draft) window_ = DraftWindow::of(engine.options().draft_window, engine.draft()->max_positions());
}

int32_t Speculation::num_own_blocks(const PrefixTree::Match& prefix) const noexcept {
  if (!choice_.draft) return 0;
  const int32_t num_tokens = prefix.num_target_tokens, num_cached = draws_ ? 0 : prefix.num_draft_tokens;
  const int32_t depth = choice_.limits.max_depth;
  const bool sees_too_much = std::min(num_tokens + window_.fresh + kBlockSize, max_tokens_) + depth > window_.most;
  if (!sees_too_much && max_tokens_ - num_cached <= window_.fresh) return 0;
  const int32_t least = std::max(num_tokens - window_.fresh, 0);
  const int32_t begin = sees_too_much ? least : std::max(least, num_cached);
  return prefix.num_whole_blocks - std::min(begin / kBlockSize, prefix.num_whole_blocks);
}

void Speculation::adopt(const Sequence& sequence) noexcept {
  // Where tokens are drawn, a seed is to repeat them whatever ran before: such a draft begins knowing nothing.
  if (!draws_) num_draft_cached_ = sequence.num_draft_tokens();
  // A head's cache holds the same of the same tokens, whoever ran them.
  if (has_head_cache()) head_state_.position = sequence.num_head_tokens();
  if (has_memory()) controller_.recall(engine_.draft_memory());
}

void Speculation::remember() noexcept {
  if (has_memory()) controller_.remember(engine_.draft_memory());
}

void Speculation::end_head(std::span<const int32_t> tokens, std::span<const int32_t> block_table) {
  if (has_head_cache()) engine_.head_drafter()->catch_up({&head_state_, tokens, block_table});
}

int32_t Speculation::prefill_begin(const Sequence& sequence) const noexcept {
  return has_head_cache() ? std::min(sequence.num_target_tokens(), head_state_.position) : sequence.num_target_tokens();
}

bool Speculation::reads_ahead(int32_t num_prompt_tokens) const noexcept {
  const int32_t num_tokens = num_prompt_tokens + 1;  // when it drafts for the first time
  return engine_.device_round() && choice_.draft && !choice_.plain && num_tokens < max_tokens_ &&
         window_begin(num_tokens) == 0;
}

// A draft model that is a chunk behind is left to catch_up(), which waits between chunks.
void Speculation::read_ahead(std::span<const int32_t> tokens, std::span<const int32_t> block_table, pf_stats& stats) {
  const std::span<const int32_t> unread = tokens.subspan(std::min(size_t(num_draft_cached_), tokens.size()));
  if (unread.empty() || unread.size() > size_t(engine_.options().prefill_chunk)) return;
  engine_.draft()->start({.ids = unread,
                          .positions = {},
                          .tree_mask = {},
                          .block_table = block_table,
                          .context = num_draft_cached_,
                          .num_outputs = 0});
  num_draft_cached_ = static_cast<int32_t>(tokens.size());
  stats.num_prefilled_draft += static_cast<int32_t>(unread.size());
}

int32_t Speculation::num_head_retained(const Sequence& sequence) const noexcept {
  const int32_t num_cached = has_head_cache() ? head_state_.position : sequence.num_head_tokens();
  return std::clamp(num_cached, 0, std::max(sequence.num_target_tokens() - 1, 0));
}

bool Speculation::has_head_cache() const noexcept { return keeps_head_ && engine_.head_drafter()->cache() != nullptr; }

int32_t Speculation::window_begin(int32_t num_tokens) const noexcept {
  const bool sees_too_much = num_tokens - first_token_ + choice_.limits.max_depth > window_.most;
  const bool is_far_behind = num_tokens - num_draft_cached_ > window_.fresh;
  if (!sees_too_much && !is_far_behind) return first_token_;
  return std::max(first_token_, (num_tokens - window_.fresh) / kBlockSize * kBlockSize);
}

void Speculation::plan(std::span<const int32_t> tokens, TreeLimits most, PassShare share, Draft& out) {
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  const int32_t num_slots = std::clamp(most.max_tokens, 0, max_slots());
  most.max_tokens = std::clamp(most.max_tokens, 0, choice_.limits.max_tokens);
  // What does not fit into the pass that others are in is worth no pass of its own.
  if (choice_.is_auto) most.max_tokens = std::clamp(share.most_rows - 1, 0, most.max_tokens);
  if (!has_memory()) share.chain.reset();  // what the others draft is not for it
  most.max_depth = std::clamp(most.max_depth, 0, choice_.limits.max_depth);
  const bool is_chain = !choice_.is_tree && !grows_trees();
  RoundState state{.num_tokens = num_tokens,
                   .most_drafted = is_chain ? std::min(most.max_tokens, most.max_depth) : most.max_tokens,
                   .num_remaining = max_tokens_ - num_tokens,
                   .draft = {},
                   .head = {},
                   .lookup = {},
                   .share = share};
  // In company, a device's round is shared where it is plain or a chain of a model or head that drafts there: nothing
  // else is worth a round of its own.
  const bool is_shared_on_device = engine_.device_round() && share.num_requests > 1;
  const int32_t begin = choice_.draft ? window_begin(num_tokens) : 0;
  if (choice_.draft) {
    const int32_t positions = engine_.draft()->max_positions() - (num_tokens - begin);
    state.draft.num_levels = std::clamp(positions, 0, most.max_depth);
    state.draft.num_behind = num_tokens - std::max(num_draft_cached_, begin);
    state.draft.context = num_tokens - begin - state.draft.num_behind;
    state.draft.is_shared = is_shared_on_device || engine_.drafter(Source::kDraft).shares_passes();
  }
  if (choice_.head) {
    HeadDrafter& head = *engine_.head_drafter();
    state.head.num_levels = std::min(head.max_depth(), most.max_depth);
    state.head.num_behind = std::max(head_state_.num_rows, 1);
    state.head.context = num_tokens - state.head.num_behind;
    state.head.is_shared = is_shared_on_device ? head.step().model != nullptr : head.shares_passes();
  }
  if (lookup_ && !share.chain && state.most_drafted > 0) state.lookup = lookup_->search(tokens, most).tokens();
  plan_ = controller_.plan(state);
  sharer_ = share.chain ? std::optional(controller_.sharer(state)) : std::nullopt;
  if (plan_.num_draft > 0 && plan_.source == Source::kDraft) {
    first_token_ = begin;
    num_draft_cached_ = std::max(num_draft_cached_, begin);
  }
  const int32_t num_planned = std::min(plan_.num_lookup + plan_.num_draft, most.max_tokens);
  out.clear({num_planned, std::min(num_planned, most.max_depth)}, num_draft_cached_,
            plan_.num_draft > 0 ? num_slots : num_planned);
}

DraftRequest Speculation::request(const Round& round) noexcept {
  return {.tokens = round.tokens,
          .max_levels = plan_.num_levels,
          .is_chain = !choice_.is_tree && !choice_.is_auto,
          .rates = plan_.num_draft > 0 ? &controller_.rates() : nullptr,
          .pace = grows_trees() ? &controller_ : nullptr,
          .first_token = first_token_,
          .block_table = round.block_table,
          .head_state = &head_state_,
          .chooser = round.chooser,
          .random = draws_ ? &round.random : nullptr,
          .cancelled = round.cancelled};
}

bool Speculation::draft(const Round& round, Draft& out, pf_stats& stats) {
  num_caught_up_ = 0;
  if (plan_.num_lookup > 0) {
    const Timer timer(stats.draft_seconds);
    lookup_->propose(plan_.num_lookup, out.tree);
    if (round.cancelled.load(std::memory_order_relaxed)) return false;
  }
  if (plan_.num_draft == 0) return true;
  const bool by_head = plan_.source == Source::kHead;
  num_caught_up_ =
      by_head ? std::max(head_state_.num_rows, 1) : static_cast<int32_t>(round.tokens.size()) - out.num_cached;
  return by_head || stats.num_prefilled_draft > 0 || catch_up(round, out, stats);
}

// Tokens of trees that grow are certain ones: which of drawn ones are verified must not depend on what was drawn.
void Speculation::end_draft(Draft& out, int32_t num_sharing) noexcept {
  num_sharing_ = num_sharing;
  if (grows_trees()) out.tree.prune(controller_.num_worth(out.tree));
}

// A tree that grows as long as it pays has about the size of the last one.
int32_t Speculation::num_rows_expected() const noexcept {
  const int32_t most = plan_.num_lookup + plan_.num_draft;
  return 1 + (grows_trees() && plan_.num_draft > 0 ? std::clamp(num_verified_, plan_.num_lookup, most) : most);
}

void Speculation::observe(const HeadRows& pass) { engine_.head_drafter()->observe(pass, head_state_); }

HiddenReader Speculation::hidden_reader(std::span<const int32_t> tokens, std::span<const int32_t> block_table) {
  return {engine_.head_drafter()->reads_all_rows(),
          [this, tokens, block_table](const Hidden& hidden, int32_t position) {
            std::array<int32_t, kMaxRoundRows> rows;
            for (int32_t first = 0; first < hidden.num_rows; first += kMaxRoundRows) {
              const std::span<int32_t> taken(rows.data(), std::min(kMaxRoundRows, hidden.num_rows - first));
              std::iota(taken.begin(), taken.end(), first);
              observe({hidden, taken, position + first, tokens, block_table});
            }
          }};
}

bool Speculation::drafts_on_device() const noexcept {
  return plan_.source != Source::kHead || engine_.head_drafter()->step().model;
}

bool Speculation::plans_chain() const noexcept {
  if (plan_.num_lookup > 0) return false;
  return plan_.num_draft == 0 || (drafts_on_device() && !choice_.is_tree && !grows_trees());
}

bool Speculation::plans_tree() const noexcept {
  return choice_.is_tree && plan_.num_lookup == 0 && drafts_on_device() && plan_.num_draft > 0 &&
         plan_.num_draft == choice_.limits.max_tokens && plan_.num_levels == choice_.limits.max_depth;
}

bool Speculation::prepare_chain(const Round& round, Draft& out, pf_stats& stats) {
  num_caught_up_ = 0;
  num_sharing_ = 1;
  if (plan_.num_draft == 0) return true;
  const auto num_tokens = static_cast<int32_t>(round.tokens.size());
  if (plan_.source == Source::kHead) {
    num_caught_up_ = std::max(head_state_.num_rows, 1);
    return true;
  }
  num_caught_up_ = num_tokens - out.num_cached;
  if (num_caught_up_ > 2 && !catch_up(round, out, stats)) return false;
  out.num_cached = num_tokens;
  return true;
}

void Speculation::begin_chain(const Round& round) {
  if (plan_.num_draft == 0 || plan_.source != Source::kHead) return;
  const HeadBegin begin = head_begin(round);
  engine_.head_drafter()->begin_on_device({&begin, 1});
}

// The first time, what the draft has to read is a prefill: all but the last token, as a round runs that one itself.
bool Speculation::catch_up(const Round& round, Draft& out, pf_stats& stats) {
  const Timer timer(stats.prefill_seconds);
  const std::span<const int32_t> before = round.tokens.first(round.tokens.size() - 1).subspan(first_token_);
  const int32_t num_cached = out.num_cached - first_token_;
  if (num_cached < static_cast<int32_t>(before.size()) &&
      !prefill(*engine_.draft(), round.block_table.subspan(first_token_ / kBlockSize), before, num_cached,
               engine_.options().prefill_chunk, round.cancelled)) {
    return false;
  }
  if (stats.num_prefilled_draft == 0) stats.num_prefilled_draft = static_cast<int32_t>(before.size()) - num_cached;
  out.num_cached = first_token_ + static_cast<int32_t>(before.size());
  return true;
}

void Speculation::record(const Draft& drafted, const Accepted& accepted, std::span<const int32_t> emitted,
                         int32_t num_draft_cached, pf_stats& stats) {
  const std::span<const int32_t> path(accepted.path.data(), accepted.num_accepted);
  if (lookup_) lookup_->record(emitted);
  stats.counted_seconds +=
      controller_.record({.tree = drafted.tree.tokens(),
                          .accepted = path,
                          .num_caught_up = num_caught_up_,
                          .level_rows = {drafted.level_rows.data(), size_t(drafted.num_level_passes)},
                          .num_sharing = num_sharing_});
  num_passes_ = num_caught_up_ > 0 ? 1 + drafted.num_level_passes : 0;
  num_verified_ = drafted.tree.size();
  num_accepted_ = accepted.num_accepted;
  std::transform(path.begin(), path.end(), ranks_.begin(),
                 [&](int32_t index) { return static_cast<int8_t>(drafted.tree[index].guess.rank); });
  num_draft_cached_ = num_draft_cached;
  count_tokens(drafted.tree, path.first(std::min(path.size(), emitted.size())), stats);
  if (num_caught_up_ > 0) ++(plan_.source == Source::kHead ? stats.num_head_rounds : stats.num_model_rounds);
  stats.num_probe_rounds += plan_.reason == RoundPlan::Reason::kProbe ? 1 : 0;
}

}  // namespace pilotfish
