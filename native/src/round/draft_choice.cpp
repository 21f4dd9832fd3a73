#include "round/draft_choice.h"

#include "base/status.h"
#include "engine/engine.h"
#include "engine/options.h"

namespace pilotfish {
namespace {

// Where no source is named, the draft model is meant where there is one.
DraftChoice choice_of(const pf_generate_options& options, bool has_draft, bool has_head) {
  const int32_t source = options.draft_source;
  const bool by_head = source == PF_DRAFT_HEAD || source == PF_DRAFT_LOOKUP_HEAD || options.num_tree_parents > 0 ||
                       (source == PF_DRAFT_AUTO && !has_draft && has_head);
  if (has_tree(options)) {
    return {.plain = false,
            .lookup = source == PF_DRAFT_LOOKUP_MODEL || source == PF_DRAFT_LOOKUP_HEAD,
            .draft = !by_head,
            .num_tokens = TokenTree::kMaxTokens,
            .head = by_head,
            .tree = options.tree_nodes > 0};
  }
  const int32_t num_tokens = options.num_draft_tokens;
  if (num_tokens == 0) return {.plain = true, .lookup = false, .draft = false, .num_tokens = 0};
  const bool is_auto = num_tokens == PF_AS_MANY_AS_PAY;
  switch (source) {
    case PF_DRAFT_MODEL:
      return {.plain = false, .lookup = false, .draft = true, .num_tokens = num_tokens};
    case PF_DRAFT_LOOKUP:
      return {.plain = false, .lookup = true, .draft = false, .num_tokens = num_tokens};
    case PF_DRAFT_LOOKUP_MODEL:
      return {.plain = false, .lookup = true, .draft = true, .num_tokens = num_tokens};
    case PF_DRAFT_HEAD:
      return {.plain = false, .lookup = false, .draft = false, .num_tokens = num_tokens, .head = true};
    case PF_DRAFT_LOOKUP_HEAD:
      return {.plain = false, .lookup = true, .draft = false, .num_tokens = num_tokens, .head = true};
    case PF_DRAFT_PLAIN:
      return {.plain = true, .lookup = false, .draft = false, .num_tokens = 0};
    default:  // PF_DRAFT_AUTO
      return {.plain = is_auto,
              .lookup = is_auto || !(has_draft || has_head),
              .draft = has_draft,
              .num_tokens = num_tokens,
              .head = is_auto ? has_head : by_head};
  }
}

}  // namespace

DraftChoice draft_choice(const pf_generate_options& options, Engine& engine) {
  HeadDrafter* const head = engine.head_drafter();
  DraftChoice choice = choice_of(options, engine.draft() != nullptr, head != nullptr);
  const bool is_auto = choice.num_tokens == DraftChoice::kAsManyAsPay;
  const bool drafts_chains = choice.draft || !choice.head || (head && head->step().model);
  choice.chain = is_auto && drafts_chains && engine.chooses_on_device(options);
  if (choice.draft && !engine.draft()) {
    fail(PF_INVALID_ARGUMENT, "the request is to draft with a model, but the bundle has no draft model");
  }
  if (choice.head && !head) {
    fail(PF_INVALID_ARGUMENT, "the request is to draft with a head, but the bundle has no head");
  }
  if (choice.head && has_tree(options) && options.tree_nodes == 0 && tree_shape(options).depth() > head->max_depth()) {
    fail(PF_INVALID_ARGUMENT, "the tree has ", tree_shape(options).depth(), " levels, the bundle's head drafts ",
         head->max_depth());
  }
  return choice;
}

TreeLimits limits_of(const DraftChoice& choice, const pf_generate_options& options, int32_t max_draft_tokens) {
  if (has_tree(options)) {
    const TreeShape shape = tree_shape(options);
    return {shape.num_tokens(), shape.depth()};
  }
  if (!choice.lookup && !choice.draft && !choice.head) return {0, 0};
  const int32_t most = choice.num_tokens == DraftChoice::kAsManyAsPay ? max_draft_tokens : choice.num_tokens;
  return {most, most};
}

}  // namespace pilotfish
