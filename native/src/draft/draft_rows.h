// What a tree is drafted with: passes over rows of tokens that give logits, and a cache with slots for drafted tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "draft/drafter.h"
#include "model/likely_rows.h"
#include "model/model.h"
#include "model/tree_pass.h"

namespace pilotfish {

class DraftRows {
 public:
  virtual ~DraftRows() = default;
  // Of the tokens that are drafted with it.
  virtual Source source() const noexcept = 0;
  virtual int32_t num_logits() const noexcept = 0;
  // The token of each logit, ascending; empty: logit j is about token j.
  virtual std::span<const int32_t> logit_ids() const noexcept = 0;
  // Levels that a tree may have.
  virtual int32_t max_depth() const noexcept { return TokenTree::kMaxTokens; }
  // Rows that a level may have.
  virtual int32_t max_rows() const noexcept = 0;
  // The first pass: brings the cache up to date with the request's sequence, which a draft model's says in
  // out.num_cached, and returns the logits after its last token. Nothing if the request was cancelled meanwhile.
  virtual std::optional<Logits> begin(const DraftRequest& request, Draft& out) = 0;
  // A further pass: the logits after the tree's tokens `level`, which have draft rows, as have those before them.
  virtual Logits run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) = 0;

  // Of a source whose passes several requests can share: the model that runs them. nullptr: each runs its own.
  virtual Model* shared_model() noexcept { return nullptr; }
  // One request's part in them, in place of begin() and run_level(). None: it has too much to read first for others to
  // wait for.
  virtual std::optional<Pass> share_begin(const DraftRequest&, const Draft&) { return std::nullopt; }
  // `rows` are those of level_pass(), and must stay until the part has been taken.
  virtual Pass share_level(const DraftRequest&, TreePass&) { return {}; }
};

// The first logits of its rows that may be drafted, where ids from num_ids on are padding.
int32_t num_choices(const DraftRows& rows, int32_t num_ids) noexcept;

// A pass of a model that drafts. On a device, `likely` finds what a greedy draft needs of its logits there; nullptr on
// the CPU.
Logits run_pass(Model& model, LikelyRows* likely, const DraftRequest& request, const Pass& pass);

// The rows of such a level: bit 0 of their masks is the last row of the first pass, the others are draft rows.
TreePass level_pass(const TokenTree& tree, std::span<const int32_t> level);

}  // namespace pilotfish
