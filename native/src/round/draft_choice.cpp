#include "round/draft_choice.h"

#include "base/status.h"
#include "engine/engine.h"
#include "engine/options.h"

namespace pilotfish {
namespace {

// The sources that are named, or where none is the draft model if there is one, else the head, else lookup. As much as
// pays may come from any of them.
DraftChoice sources_of(const pf_generate_options& options, bool has_draft, bool has_head) {
  const int32_t source = options.draft_source;
  const bool is_tree = options.tree_nodes > 0;
  if (source == PF_DRAFT_PLAIN || (options.num_draft_tokens == 0 && !is_tree)) return {.plain = true};
  if (source != PF_DRAFT_AUTO) {
    return {.lookup = source == PF_DRAFT_LOOKUP || source == PF_DRAFT_LOOKUP_MODEL || source == PF_DRAFT_LOOKUP_HEAD,
            .draft = source == PF_DRAFT_MODEL || source == PF_DRAFT_LOOKUP_MODEL,
            .head = source == PF_DRAFT_HEAD || source == PF_DRAFT_LOOKUP_HEAD};
  }
  if (options.num_draft_tokens == PF_AS_MANY_AS_PAY && !is_tree) {
    return {.plain = true, .lookup = true, .draft = has_draft, .head = has_head};
  }
  return {.lookup = !is_tree && !has_draft && !has_head,
          .draft = has_draft || (is_tree && !has_head),
          .head = !has_draft && has_head};
}

}  // namespace

DraftChoice draft_choice(const pf_generate_options& options, Engine& engine) {
  HeadDrafter* const head = engine.head_drafter();
  DraftChoice choice = sources_of(options, engine.draft() != nullptr, head != nullptr);
  if (choice.draft && !engine.draft()) {
    fail(PF_INVALID_ARGUMENT, "the request is to draft with a model, but the bundle has no draft model");
  }
  if (choice.head && !head) {
    fail(PF_INVALID_ARGUMENT, "the request is to draft with a head, but the bundle has no head");
  }
  if (!choice.lookup && !choice.draft && !choice.head) return choice;
  choice.is_tree = options.tree_nodes > 0;
  choice.is_auto = !choice.is_tree && options.num_draft_tokens == PF_AS_MANY_AS_PAY;
  const int32_t most = choice.is_auto ? engine.options().max_draft_tokens : options.num_draft_tokens;
  choice.limits = choice.is_tree ? tree_limits(options) : TreeLimits{most, most};
  const bool drafts_chains = choice.draft || !choice.head || head->step().model;
  choice.fixes_chains = choice.is_auto && drafts_chains && engine.chooses_on_device(options);
  return choice;
}

}  // namespace pilotfish
