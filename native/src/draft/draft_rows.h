// What a tree is drafted with: passes over rows of tokens that give logits, and a cache with slots for drafted tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "draft/drafter.h"
#include "model/likely_rows.h"
#include "model/model.h"
#include "model/shared_pass.h"
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

  // Whether several requests can share passes, at whose levels these stand in place of begin() and run_level(). `slot`
  // says which of the requests one is.
  virtual bool shares_passes() const noexcept { return false; }
  // Rows that the first pass would have for the request.
  virtual int32_t num_unread(const DraftRequest&, const Draft&) const noexcept { return 1; }
  // The request's part in a first pass, from row first_row on. It counts as read.
  virtual Pass share_begin(const DraftRequest&, Draft&, int32_t) { return {}; }
  // Its part in a further one; `rows` are those of level_pass(), and must stay until it has been taken.
  virtual Pass share_level(const DraftRequest&, TreePass&) { return {}; }
  struct DraftRow {
    int32_t slot;
    int32_t row;
  };
  // What such rows need besides, from row first_row of the pass on; and what their outputs leave behind for later ones.
  virtual void fill_shared(DraftRow, const TokenTree&, std::span<const int32_t>, int32_t) {}
  virtual void keep_shared(DraftRow, int32_t, int32_t) {}
  // A pass of several that have `depth` levels, 0 before the first one; `request` is one of them. All of them need as
  // much of the logits where a device finds_likeliest() ones.
  virtual Logits run_shared(SharedPass&, const DraftRequest&, int32_t) { return {}; }
  virtual bool finds_likeliest() const noexcept { return false; }
};

// The first logits of its rows that may be drafted, where ids from num_ids on are padding.
int32_t num_choices(const DraftRows& rows, int32_t num_ids) noexcept;

// A pass of a model that drafts. On a device, `likely` finds what a greedy draft needs of its logits there; nullptr on
// the CPU.
Logits run_pass(Model& model, LikelyRows* likely, const DraftRequest& request, const Pass& pass);

// The rows of such a level: bit 0 of their masks is the last row of the first pass, the others are draft rows.
TreePass level_pass(const TokenTree& tree, std::span<const int32_t> level);

}  // namespace pilotfish
