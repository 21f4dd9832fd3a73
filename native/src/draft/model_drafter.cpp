#include "draft/model_drafter.h"

#include <array>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>

#include "base/pass_limits.h"
#include "draft/draw.h"
#include "sampling/row_math.h"

namespace pilotfish {
namespace {

// Tokens that a confidence is a share of, where there is noise.
constexpr int32_t kNumCompared = 16;

// Paths of a dynamic tree that a level continues.
constexpr size_t kMostContinued = 8;

// Tokens that a first pass which others share reads for one request: a round leaves a few unread.
constexpr int32_t kMostUnread = 16;

int32_t index_of_row(const TokenTree& tree, int32_t draft_row) {
  if (draft_row == 0) return TokenTree::kRoot;
  for (int32_t i = 0; i < tree.size(); ++i) {
    if (tree[i].draft_row == draft_row) return i;
  }
  return TokenTree::kNone;
}

}  // namespace

ModelDrafter::Candidate ModelDrafter::candidate(const TokenTree& tree, int32_t parent, int32_t id, float prob) {
  const bool is_root = parent == TokenTree::kRoot;
  return {.id = id,
          .parent_row = is_root ? 0 : tree[parent].draft_row,
          .prob = prob,
          .path_prob = is_root ? prob : prob * tree[parent].path_prob,
          .draw = {},
          .guess = {}};
}

ModelDrafter::ModelDrafter(DraftRows& rows, int32_t num_ids, int32_t most_together)
    : rows_(rows),
      num_ids_(rows.logit_ids().empty() ? std::min(num_ids, rows.num_logits()) : num_ids),
      likeliest_(num_ids_),
      row_(rows.logit_ids().empty() ? 0 : num_ids, -std::numeric_limits<float>::infinity()),
      growths_(most_together) {
  constexpr size_t kMaxTokens = TokenTree::kMaxTokens;
  candidates_.reserve(kMaxTokens * Likeliest::kMost);
  picked_.reserve(Likeliest::kMost);
  path_probs_.reserve(kMaxTokens * (Likeliest::kMost + 1));
  for (Growth& growth : growths_) growth.level.reserve(kMaxTokens);
}

bool ModelDrafter::start(Growth& growth, const DraftRequest& request, Draft& out) const {
  growth.request = &request;
  growth.out = &out;
  growth.max_depth = std::min({request.max_levels, out.tree.limits().max_depth, rows_.max_depth()});
  growth.slot = static_cast<int32_t>(&growth - growths_.data());
  growth.depth = growth.num_rows = 0;
  growth.error = nullptr;
  growth.level.clear();
  if (growth.max_depth > 0 && out.tree.limits().max_tokens > 0) growth.level.push_back(TokenTree::kRoot);
  return !growth.level.empty();
}

bool ModelDrafter::propose(const DraftRequest& request, Draft& out) {
  Growth& growth = growths_[0];
  if (!start(growth, request, out)) return true;
  std::optional<Logits> logits = rows_.begin(request, out);
  while (logits) {
    grow(growth, *logits, 0);
    if (growth.level.empty()) return true;
    if (is_through(growth)) return false;
    logits = rows_.run_level(request, out.tree, growth.level);
  }
  return false;
}

void ModelDrafter::propose(std::span<Proposal> proposals, SharedPass& pass) {
  if (!shares_passes() || proposals.size() < 2) return Drafter::propose(proposals, pass);
  assert(proposals.size() <= growths_.size());
  const auto growths = std::span(growths_).first(proposals.size());
  // From the last one on: what begin() leaves behind is in slot 0 until it is moved.
  for (size_t i = growths.size(); i-- > 0;) {
    if (start(growths[i], proposals[i].request, *proposals[i].out)) begin_alone(growths[i]);
  }
  for (Turn turn : {Turn{true, true}, Turn{false, true}}) {
    const auto is_over = [&](const Growth& growth) { return is_through(growth) || !has(turn, growth); };
    for (; !std::ranges::all_of(growths, is_over); turn.is_first = false) {
      for (std::span<Growth> left = growths; !left.empty();) left = run_together(left, turn, pass);
    }
  }
  for (size_t i = 0; i < growths.size(); ++i) {
    proposals[i].is_cancelled = !growths[i].level.empty();
    proposals[i].error = std::move(growths[i].error);
  }
}

bool ModelDrafter::has(Turn turn, const Growth& growth) const noexcept {
  const bool needs_likeliest_only = rows_.finds_likeliest() && growth.request->needs_likeliest_only();
  return needs_likeliest_only == turn.needs_likeliest_only;
}

std::span<ModelDrafter::Growth> ModelDrafter::run_together(std::span<Growth> growths, Turn turn, SharedPass& pass) {
  std::array<Growth*, kMostTogether> sharing;
  std::array<int32_t, kMostTogether> first_outputs;
  size_t num_sharing = 0, next = 0;
  pass.clear();
  for (; next < growths.size(); ++next) {
    Growth& growth = growths[next];
    if (is_through(growth) || !has(turn, growth) || turn.is_first != (growth.depth == 0)) continue;
    const std::optional<int32_t> first_output = share(growth, pass);
    if (!first_output) break;
    first_outputs[num_sharing] = *first_output;
    sharing[num_sharing++] = &growth;
  }
  if (num_sharing == 0) return growths.subspan(next);
  const Logits logits = rows_.run_shared(pass, *sharing[0]->request, sharing[0]->depth);
  for (size_t i = 0; i < num_sharing; ++i) {
    Growth& growth = *sharing[i];
    const int32_t draft_row = turn.is_first ? 0 : growth.out->tree[growth.level[0]].draft_row;
    rows_.keep_shared({growth.slot, draft_row}, first_outputs[i], static_cast<int32_t>(growth.level.size()));
    try_grow(growth, logits, first_outputs[i]);
  }
  return growths.subspan(next);
}

void ModelDrafter::begin_alone(Growth& growth) {
  if (rows_.num_unread(*growth.request, *growth.out) <= kMostUnread) return;
  const std::optional<Logits> logits = rows_.begin(*growth.request, *growth.out);
  if (!logits) return;
  rows_.keep_shared({growth.slot, 0}, 0, 1);
  try_grow(growth, *logits, 0);
}

void ModelDrafter::try_grow(Growth& growth, const Logits& rows, int32_t first_row) noexcept {
  try {
    grow(growth, rows, first_row);
  } catch (...) {
    growth.error = std::current_exception();
    growth.level.clear();
  }
}

std::optional<int32_t> ModelDrafter::share(Growth& growth, SharedPass& pass) {
  if (growth.depth == 0) {
    if (!pass.has_room(rows_.num_unread(*growth.request, *growth.out), 1)) return std::nullopt;
    return pass.add(rows_.share_begin(*growth.request, *growth.out, pass.num_rows()));
  }
  const auto num_rows = static_cast<int32_t>(growth.level.size());
  if (!pass.has_room(num_rows, num_rows)) return std::nullopt;
  TreePass level = level_pass(growth.out->tree, growth.level);
  rows_.fill_shared({growth.slot, 0}, growth.out->tree, growth.level, pass.num_rows());
  return pass.add(rows_.share_level(*growth.request, level));
}

void ModelDrafter::grow(Growth& growth, const Logits& rows, int32_t first_row) {
  ++growth.depth;
  candidates_.clear();
  picked_from_ = nullptr;
  for (size_t i = 0; i < growth.level.size(); ++i) {
    expand(growth, rows, first_row + static_cast<int32_t>(i), growth.level[i]);
  }
  settle(growth);
  growth.level.clear();
  if (growth.depth < growth.max_depth) choose_level(growth);
  if (!growth.level.empty()) growth.out->count_level(growth.level.size());
}

void ModelDrafter::expand(const Growth& growth, const Logits& rows, int32_t row, int32_t parent) {
  const DraftRequest& request = *growth.request;
  Draft& out = *growth.out;
  const int32_t room = out.tree.limits().max_tokens - out.tree.size() - static_cast<int32_t>(candidates_.size());
  if (request.is_chain && room <= 0) return;
  const int32_t count = request.is_chain ? 1 : DraftRequest::kMostChildren;
  if (!rows.likeliest.empty()) {
    pick(rows.likely_row(row));
    return add_picked(request, parent, count, out.tree);
  }
  const std::span<const float> logits = rows.row(row);
  // Medusa's heads score a level in one row for all of its tokens.
  if (logits.data() == picked_from_ && count <= static_cast<int32_t>(picked_.size())) {
    return add_picked(request, parent, count, out.tree);
  }
  picked_.clear();
  picked_from_ = request.chooser.changes_scores() ? nullptr : logits.data();
  std::array<int32_t, TokenTree::kMaxTokens> ids;
  const Prefix prefix{request.tokens, out.tree.path(parent, ids)};
  if (request.chooser.is_greedy() && !request.chooser.changes_scores() && !rows_.logit_ids().empty()) {
    const float sum = exp_sum(logits, find_peak(logits).value, 1);
    if (!std::isfinite(sum)) return note_failure(logits, out);
    pick(logits, rows_.logit_ids(), 1 / sum, count);
    return add_picked(request, parent, count, out.tree);
  }
  const std::span<const float> by_id = by_token(logits);
  if (request.chooser.is_greedy()) {
    const std::span<const float> scores = request.chooser.scores(by_id, prefix);
    if (scores.empty()) return note_failure(by_id, out);
    const float sum = exp_sum(scores, find_peak(scores).value, 1);
    if (!std::isfinite(sum)) return note_failure(by_id, out);
    pick(scores, {}, 1 / sum, count);
    add_picked(request, parent, count, out.tree);
  } else if (request.random) {
    picked_from_ = nullptr;
    draw_child(request, by_id, prefix, parent, out);
  } else {
    const std::span<const Ranked> best = request.chooser.rank(by_id, prefix, std::max(count, kNumCompared));
    if (best.empty()) return note_failure(by_id, out);
    pick(best, request.chooser.temperature(), count);
    add_picked(request, parent, count, out.tree);
  }
}

void ModelDrafter::note_failure(std::span<const float> logits, Draft& out) noexcept {
  out.is_broken = out.is_broken || !are_numbers(logits);
}

std::span<const float> ModelDrafter::by_token(std::span<const float> logits) {
  const std::span<const int32_t> ids = rows_.logit_ids();
  if (ids.empty()) return logits.first(num_ids_);
  for (size_t i = 0; i < ids.size(); ++i) row_[ids[i]] = logits[i];
  return row_;
}

// Element i of `scores` belongs to ids[i], or to id i if there are none; the likeliest has the probability `peak_prob`.
void ModelDrafter::pick(std::span<const float> scores, std::span<const int32_t> ids, float peak_prob, int32_t count) {
  const std::span<const Peak> found = likeliest_.find(scores, count);
  for (const Peak& peak : found) {
    const float confidence = std::exp(peak.value - found[0].value) * peak_prob;
    picked_.push_back({ids.empty() ? peak.index : ids[peak.index], confidence});
  }
}

// The confidence is the softmax of what greedy decoding would compare, with the noise in place: scores are
// exp((logit + temperature * gumbel) / temperature). A token that leads by much is the target's too although that sees
// other logits; one that leads by little may not be. Those far behind have no part in the sum.
void ModelDrafter::pick(std::span<const Ranked> best, float temperature, int32_t count) {
  std::array<float, Sampler::kMostRanked> shares;
  float sum = 0;
  for (size_t i = 0; i < best.size(); ++i) sum += shares[i] = std::pow(best[i].score / best[0].score, temperature);
  for (size_t i = 0; i < std::min(best.size(), size_t(count)); ++i) picked_.push_back({best[i].id, shares[i] / sum});
}

void ModelDrafter::pick(const LikelyRow& found) {
  picked_.clear();
  picked_from_ = nullptr;
  const std::span<const int32_t> ids = rows_.logit_ids();
  for (int32_t rank = 0; rank < kMostLikely && std::isfinite(found.logits[rank]); ++rank) {
    const int32_t index = found.indices[rank];
    picked_.push_back({ids.empty() ? index : ids[index], std::exp(found.logits[rank] - found.log_sum)});
  }
}

void ModelDrafter::add_picked(const DraftRequest& request, int32_t parent, int32_t count, const TokenTree& tree) {
  const int32_t depth = parent == TokenTree::kRoot ? 1 : tree[parent].depth + 1;
  for (int32_t rank = 0; rank < std::min<int32_t>(count, picked_.size()); ++rank) {
    const Guess guess{rank, picked_[rank].confidence};
    const float prob = request.rates ? request.rates->prob(guess, depth) : guess.confidence;
    candidates_.push_back(candidate(tree, parent, picked_[rank].id, prob));
    candidates_.back().guess = guess;
  }
}

// Beside those that lookup found.
void ModelDrafter::draw_child(const DraftRequest& request, std::span<const float> row, const Prefix& prefix,
                              int32_t parent, Draft& out) {
  const TokenTree& tree = out.tree;
  const int32_t position = static_cast<int32_t>(prefix.tokens.size() + prefix.path.size());
  const int32_t index = out.num_distributions;
  Distribution& distribution = out.distributions[index];
  std::array<int32_t, TokenTree::kMaxTokens> siblings;
  int32_t num_siblings = 0;
  for (int32_t i = tree.next_child(parent, parent); i != TokenTree::kNone; i = tree.next_child(parent, i)) {
    siblings[num_siblings++] = tree[i].id;
  }
  if (!request.chooser.distribution(row, prefix, distribution)) return note_failure(row, out);
  ++out.num_distributions;
  const Drawn drawn =
      draw_beside(distribution, {siblings.data(), size_t(num_siblings)},
                  request.random->uniform(position, RandomStream::Purpose::kDraft, int32_t(candidates_.size())));
  if (!(drawn.mass > 0)) return;
  candidates_.push_back(candidate(tree, parent, drawn.id, drawn.peak));
  candidates_.back().draw = {index, drawn.mass};
}

void ModelDrafter::sift(TokenTree& tree) {
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    const int32_t same = tree.find_child(index_of_row(tree, candidate.parent_row), candidate.id);
    if (same != TokenTree::kNone) tree.raise_prob(same, candidate.prob);
    return same != TokenTree::kNone;
  });
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    if (a.path_prob != b.path_prob) return a.path_prob > b.path_prob;
    return a.parent_row != b.parent_row ? a.parent_row < b.parent_row : a.id < b.id;
  });
  // How many of the tree's own are among the likeliest of both; as many as there is room for.
  path_probs_.clear();
  for (const TreeToken& token : tree.tokens()) path_probs_.push_back(token.path_prob);
  std::sort(path_probs_.begin(), path_probs_.end(), std::greater<>());
  const auto room = size_t(tree.limits().max_tokens);
  size_t num_kept = 0, num_new = 0;
  while (num_kept + num_new < room && num_kept + num_new < path_probs_.size() + candidates_.size()) {
    const bool is_new = num_kept == path_probs_.size() ||
                        (num_new < candidates_.size() && candidates_[num_new].path_prob > path_probs_[num_kept]);
    ++(is_new ? num_new : num_kept);
  }
  tree.prune(static_cast<int32_t>(num_kept));
  candidates_.resize(num_new);
}

void ModelDrafter::settle(Growth& growth) {
  TokenTree& tree = growth.out->tree;
  if (!growth.request->is_chain) sift(tree);
  for (const Candidate& candidate : candidates_) {
    const int32_t parent = index_of_row(tree, candidate.parent_row);
    const int32_t index = tree.add(candidate.id, parent, candidate.prob, rows_.source());
    if (index == TokenTree::kNone) continue;
    if (candidate.draw.distribution != Draw::kCertain) tree.set_draw(index, candidate.draw);
    if (tree[index].source == rows_.source() && candidate.draw.distribution == Draw::kCertain) {
      tree.set_guess(index, candidate.guess);
    }
  }
}

void ModelDrafter::choose_level(Growth& growth) {
  const DraftRequest& request = *growth.request;
  TokenTree& tree = growth.out->tree;
  std::vector<int32_t>& level = growth.level;
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TreeToken& token = tree[i];
    const bool is_known = token.parent == TokenTree::kRoot || tree[token.parent].draft_row > 0;
    if (token.depth == growth.depth && is_known && !request.chooser.ends_text(token.id)) level.push_back(i);
  }
  const int32_t most_rows = std::min(growth.out->max_draft_rows - growth.num_rows, rows_.max_rows());
  const size_t room = size_t(std::max(0, most_rows));
  if (!request.is_chain) {
    const size_t most = std::min(room, kMostContinued);
    const auto is_likelier = [&](int32_t a, int32_t b) {
      return tree[a].path_prob != tree[b].path_prob ? tree[a].path_prob > tree[b].path_prob : a < b;
    };
    std::sort(level.begin(), level.end(), is_likelier);
    if (level.size() > most) level.resize(most);
    if (request.pace && !level.empty()) level.resize(request.pace->num_continued(tree, level));
    std::sort(level.begin(), level.end());
  } else if (tree.is_full()) {
    level.clear();
  }
  if (level.size() > room) level.resize(room);
  for (const int32_t index : level) tree.set_draft_row(index, ++growth.num_rows);
}

}  // namespace pilotfish
