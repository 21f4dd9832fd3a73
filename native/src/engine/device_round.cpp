#include "engine/device_round.h"

#include <algorithm>
#include <cassert>

#include "base/status.h"
#include "device/chain_lengths.h"
#include "sampling/sampling_options.h"

namespace pilotfish {
namespace {

// Whether the pass was started before the round.
bool has_begun(Source source, int32_t step) { return source == Source::kHead && step == 0; }

}  // namespace

int32_t DeviceRound::num_choices(const Model& model, int32_t num_ids) noexcept {
  return model.logit_ids().empty() ? std::min(num_ids, model.num_logits()) : model.num_logits();
}

DeviceRound::DeviceRound(std::shared_ptr<CudaDevice> device, Model& target, RoundModel draft, RoundModel head,
                         int32_t num_ids, const Recording& recording)
    : device_(std::move(device)),
      target_(target),
      num_target_choices_(num_choices(target, num_ids)),
      settings_(static_cast<RoundSettings*>(device_->allocate_host(sizeof(RoundSettings) * target.limits().max_seqs))),
      outcome_(static_cast<RoundOutcome*>(device_->allocate_host(sizeof(RoundOutcome)))),
      device_settings_(memory<RoundSettings>(target.limits().max_seqs)),
      ids_(target.limits().max_outputs),
      masks_(target.limits().max_outputs, 1),
      positions_(target.limits().max_outputs),
      output_rows_(target.limits().max_seqs),
      sequences_(target.limits().max_seqs),
      outcomes_(target.limits().max_seqs),
      recorded_([this](const RecordedRounds::Enqueue& enqueue) { return device_->record(enqueue); }, recording.pass,
                most_recorded_bytes(recording.pass, recording.max_drafted)),
      recorded_shared_([this](const RecordedRounds::Enqueue& enqueue) { return device_->record(enqueue); },
                       recording.pass, most_shared_bytes(recording.pass, target.limits().max_seqs)) {
  int32_t num_logits = target.num_logits();
  for (const Model* model : {draft.model, head.model}) {
    if (model) num_logits = std::max(num_logits, model->num_logits());
  }
  memory_ = {.settings = device_settings_,
             .outcome = memory<RoundOutcome>(1),
             .parts = memory<RowPart>(size_t(kMaxRoundRows) * num_row_parts(num_logits)),
             .arrivals = memory<int32_t>(1),
             .rows = memory<RowDistribution>(kMaxRoundRows)};
  draft_ = drafting(draft, num_ids);
  head_ = drafting(head, num_ids);
}

DeviceRound::Drafting DeviceRound::drafting(RoundModel by, int32_t num_ids) {
  if (!by.model) return {};
  const Model* const model = by.model;
  Drafting made{.model = by.model,
                .num_choices = num_choices(*model, num_ids),
                .logit_ids = nullptr,
                .tree = {.likely = by.likely->memory(),
                         .candidates = memory<TreeCandidate>(kMostTrees * kMostCandidates),
                         .continued = memory<int32_t>(kMostTrees * kTreeRows),
                         .parent_rows = memory<int32_t>(kMostTrees * kTreeRows)}};
  const std::span<const int32_t> ids = model->logit_ids();
  if (ids.empty()) return made;
  int32_t* const logit_ids = memory<int32_t>(ids.size());
  device_->upload(logit_ids, ids.data(), ids.size_bytes());
  device_->synchronize();
  made.logit_ids = logit_ids;
  return made;
}

DeviceRound::~DeviceRound() {
  device_->release_host(settings_);
  device_->release_host(outcome_);
}

// Zeros.
template <typename Element>
Element* DeviceRound::memory(size_t count) {
  const size_t num_bytes = sizeof(Element) * count;
  std::byte* const data = memories_.emplace_back(device_, num_bytes).data();
  device_->fill(data, 0, num_bytes, num_bytes, 1);
  return reinterpret_cast<Element*>(data);
}

RoundSettings DeviceRound::settings_of(const pf_generate_options& options) noexcept {
  return {.first_position = 0,
          .draft_position = 0,
          .inverse_temperature = is_greedy(options) ? 1 : 1 / options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .min_p = options.min_p,
          .key = {static_cast<uint32_t>(options.seed), static_cast<uint32_t>(options.seed >> 32)},
          .is_greedy = is_greedy(options) ? 1 : 0};
}

int32_t DeviceRound::chain_length(int32_t most, int32_t usual) noexcept {
  if (most == usual || most == 0) return most;
  return chain_length_within(most);
}

int32_t DeviceRound::padded_length(int32_t num_drafted, int32_t most) noexcept {
  return num_drafted == 0 ? 0 : std::min(chain_length_of_at_least(num_drafted), most);
}

const RoundOutcome& DeviceRound::run(const Chain& chain, const RoundSettings& settings) {
  set_inputs(chain, settings);
  return run({.num_drafted = chain.num_drafted,
              .is_greedy = settings.is_greedy != 0,
              .gives_hidden = chain.gives_hidden,
              .source = chain.source});
}

const RoundOutcome& DeviceRound::verify(const Pass& rows, int32_t num_tokens, const RoundSettings& settings) {
  target_.set_inputs(rows);
  *settings_ = settings;
  settings_->first_position = num_tokens;
  return run({.num_drafted = static_cast<int32_t>(rows.ids.size()) - 1,
              .is_greedy = settings.is_greedy != 0,
              .drafted = rows.tree_mask.empty() ? Drafted::kChainBefore : Drafted::kTreeBefore,
              .gives_hidden = rows.num_hidden > 0});
}

const RoundOutcome& DeviceRound::run(RoundKind kind) {
  start(kind);
  return finish();
}

void DeviceRound::start(RoundKind kind) {
  (kind.num_seqs > 1 ? recorded_shared_ : recorded_).run(kind, [&] { enqueue(kind); });
}

const RoundOutcome& DeviceRound::finish() {
  device_->synchronize();
  if (outcome_->is_broken) {
    fail(PF_BUNDLE_CORRUPT,
         "logits of the target or of its draft are not numbers (NaN or infinite): their weights are damaged, or too "
         "large for the formats of weights and caches; export the bundle again");
  }
  return *outcome_;
}

bool DeviceRound::grows(Source source, TreeLimits tree, int32_t num_slots) const noexcept {
  const Drafting& by = of(source);
  const int32_t num_continued = (tree.max_depth - 1) * kTreeRows;
  return tree.max_depth >= 1 && tree.max_depth <= kMostTreeLevels && num_continued <= num_slots &&
         tree.max_tokens <= kMostLikely * (1 + num_continued) && by.num_choices >= kMostLikely &&
         by.model->limits().max_outputs >= kTreeRows;
}

const RoundOutcome& DeviceRound::run_tree(const Chain& chain, int32_t num_levels, const RoundSettings& settings) {
  set_inputs(chain, settings);
  return run({.num_drafted = chain.num_drafted,
              .is_greedy = settings.is_greedy != 0,
              .drafted = Drafted::kTreeInRound,
              .num_levels = num_levels,
              .gives_hidden = chain.gives_hidden,
              .source = chain.source});
}

void DeviceRound::set_inputs(const Chain& chain, const RoundSettings& settings) {
  const auto num_tokens = static_cast<int32_t>(chain.tokens.size());
  const int32_t num_rows = chain.num_drafted + 1;
  ids_[0] = chain.tokens.back();
  target_.set_inputs({.ids = std::span<const int32_t>(ids_).first(num_rows),
                      .positions = {},
                      .tree_mask = std::span<const uint64_t>(masks_).first(num_rows),
                      .block_table = chain.block_table,
                      .context = num_tokens - 1,
                      .num_outputs = num_rows,
                      .num_hidden = chain.gives_hidden ? num_rows : 0});
  const int32_t num_seen = num_tokens - chain.first_token;
  *settings_ = at(chain, settings);
  if (chain.num_drafted == 0 || chain.source == Source::kHead || !draft_.model) return;
  assert(num_seen >= 2);
  // Both of the last two tokens run, whether the first of them is cached already or not: the shape stays the same, and
  // the cache gets the same bits again.
  draft_.model->set_inputs({.ids = chain.tokens.last(2),
                            .positions = {},
                            .tree_mask = {},
                            .block_table = draft_table(chain),
                            .context = num_seen - 2,
                            .num_outputs = 1});
}

RoundSettings DeviceRound::at(const Chain& chain, RoundSettings settings) const noexcept {
  const auto num_tokens = static_cast<int32_t>(chain.tokens.size());
  settings.first_position = num_tokens;
  // A row of a head's is a token at the position before it.
  settings.draft_position = chain.source == Source::kHead ? num_tokens - 1 : num_tokens - chain.first_token;
  return settings;
}

std::span<const int32_t> DeviceRound::draft_table(const Chain& chain) const noexcept {
  return chain.block_table.subspan(chain.first_token / draft_.model->limits().block_size);
}

void DeviceRound::enqueue(RoundKind kind) {
  const int32_t num_rows = kind.num_rows();
  device_->upload(device_settings_, settings_, sizeof *settings_ * kind.num_seqs);
  target_.upload();
  if (kind.num_steps() > 0 && kind.source == Source::kDraft) draft_.model->upload();
  device_->start_round(memory_);
  for (int32_t step = 0; step < kind.num_steps(); ++step) {
    kind.has_chain_steps() ? enqueue_draft_step(step, kind) : enqueue_level(step, kind);
  }
  const bool is_filled = kind.verified.num_rows > 0;
  target_.enqueue({.num_rows = num_rows,
                   .num_outputs = num_rows,
                   .num_hidden = kind.gives_hidden ? num_rows : 0,
                   .is_causal = !kind.is_tree(),
                   .num_seqs = kind.num_seqs,
                   .sequence_rows = is_filled ? kind.verified.sequence_rows : kind.sequence_rows()});
  const PassInputs inputs = target_.device_inputs();
  const TargetChoice choice{.rows = {.logits = target_.device_logits(),
                                     .num_rows = num_rows,
                                     .num_logits = target_.num_logits(),
                                     .num_choices = num_target_choices_,
                                     .sequence_rows = kind.sequence_rows(),
                                     .seq_starts = is_filled ? inputs.seq_starts : nullptr,
                                     .num_seqs = kind.num_seqs},
                            .target_ids = inputs.input_ids,
                            .position_ids = kind.is_tree() ? inputs.position_ids : nullptr,
                            .is_noisy = !kind.is_greedy};
  if (choice.is_noisy) {
    device_->add_noise({.rows = choice.rows, .logits = target_.device_logits(), .position_ids = choice.position_ids},
                       memory_);
  }
  device_->choose_tokens(choice, memory_);
  device_->download(outcome_, memory_.outcome, sizeof *outcome_);
}

void DeviceRound::enqueue_level(int32_t level, RoundKind kind) {
  const Drafting& by = of(kind.source);
  const int32_t rows_each = level == 0 ? 1 : kTreeRows, num_rows = kind.num_seqs * rows_each;
  const bool is_shared = kind.num_seqs > 1;
  if (level > 0) by.model->carry_on(by.tree.parent_rows, num_rows);
  if (!has_begun(kind.source, level)) {
    const int32_t most_rows = level == 0 ? 2 : kTreeRows;
    by.model->enqueue({.num_rows = kind.num_seqs * most_rows,
                       .num_outputs = num_rows,
                       .is_causal = level == 0,
                       .num_seqs = kind.num_seqs,
                       .sequence_rows = is_shared ? most_rows : 0});
  }
  const LogitRows rows{.logits = by.model->device_logits(),
                       .num_rows = num_rows,
                       .num_logits = by.model->num_logits(),
                       .num_choices = by.num_choices,
                       .sequence_rows = is_shared ? rows_each : 0};
  if (!kind.is_greedy) add_noise(by, rows, by.model->device_logits(), level);
  device_->find_likeliest(rows, by.tree.likely);
  device_->grow_tree({.tree = by.tree,
                      .level = level,
                      .num_levels = kind.num_levels,
                      .num_nodes = kind.num_drafted,
                      .num_choices = by.num_choices,
                      .logit_ids = by.logit_ids,
                      .next = by.model->device_inputs(),
                      .verified = target_.device_inputs(),
                      .num_seqs = kind.num_seqs},
                     memory_);
}

void DeviceRound::enqueue_draft_step(int32_t step, RoundKind kind) {
  const Drafting& by = of(kind.source);
  const int32_t num_rows = kind.num_seqs, first_output = step * num_rows, rows_each = step == 0 ? 2 : 1;
  if (step > 0) by.model->carry_on(num_rows);
  if (!has_begun(kind.source, step)) {
    by.model->enqueue({.num_rows = rows_each * num_rows,
                       .num_outputs = num_rows,
                       .num_seqs = num_rows,
                       .sequence_rows = num_rows > 1 ? rows_each : 0},
                      first_output);
  }
  float* const logits = by.model->device_logits() + size_t(first_output) * by.model->num_logits();
  const LogitRows rows{.logits = logits,
                       .num_rows = num_rows,
                       .num_logits = by.model->num_logits(),
                       .num_choices = by.num_choices,
                       .sequence_rows = num_rows > 1 ? 1 : 0};
  if (!kind.is_greedy) add_noise(by, rows, logits, step);
  device_->choose_tokens(DraftStep{.rows = rows,
                                   .logit_ids = by.logit_ids,
                                   .step = step,
                                   .next = by.model->device_inputs(),
                                   .target_ids = target_.device_inputs().input_ids,
                                   .num_steps = kind.num_drafted},
                         memory_);
}

// To rows that choose the token after `depth` drafted ones.
void DeviceRound::add_noise(const Drafting& by, const LogitRows& rows, float* logits, int32_t depth) {
  device_->add_noise({.rows = rows, .logits = logits, .logit_ids = by.logit_ids, .has_one_depth = true, .depth = depth},
                     memory_);
}

}  // namespace pilotfish
