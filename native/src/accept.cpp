#include "accept.h"

#include "sampling/row_math.h"

namespace pilotfish {
namespace {

using Purpose = RandomStream::Purpose;

// A path on its way down the tree.
class Walk {
 public:
  explicit Walk(const Verification& verification) : verification_(verification) {}

  int32_t at() const noexcept { return accepted_.last(); }
  // Index in the sequence of the token that is being decided.
  int32_t position() const noexcept {
    return static_cast<int32_t>(verification_.tokens.size()) + accepted_.num_accepted;
  }
  std::span<const float> logits() const { return verification_.target.row(at() + 1).first(verification_.num_ids); }
  Prefix prefix() const noexcept { return {verification_.tokens, {ids_.data(), size_t(accepted_.num_accepted)}}; }

  void keep(int32_t index) noexcept {
    ids_[accepted_.num_accepted] = verification_.tree[index].id;
    accepted_.path[accepted_.num_accepted++] = index;
  }
  Accepted end(int32_t next_id) noexcept {
    accepted_.next_id = next_id;
    return accepted_;
  }
  Accepted end_without_token() {
    if (accepted_.num_accepted == 0) verification_.chooser.fail_no_token(logits(), prefix());
    return end(Accepted::kNoToken);
  }

 private:
  const Verification& verification_;
  Accepted accepted_;
  std::array<int32_t, TokenTree::kMaxTokens> ids_;
};

int32_t last_drawn_child(const TokenTree& tree, int32_t parent) {
  int32_t last = TokenTree::kNone;
  for (int32_t i = tree.next_child(parent, parent); i != TokenTree::kNone; i = tree.next_child(parent, i)) {
    if (tree[i].draw.distribution != Draw::kCertain) last = i;
  }
  return last;
}

// What a step down the tree decides.
struct Step {
  int32_t child;  // TokenTree::kNone: the path ends here, and `id` follows it
  int32_t id;     // Accepted::kNoToken: none may
};

// Tries the children up to the last drawn one; the rest is up to a draw from what the distribution has become.
Step decide(const Verification& verification, std::span<const Distribution> draft, const RandomStream& random,
            const Walk& walk, Distribution& target) {
  const TokenTree& tree = verification.tree;
  const int32_t parent = walk.at();
  const int32_t last_drawn = last_drawn_child(tree, parent);
  const auto find_target = [&] { return verification.chooser.distribution(walk.logits(), walk.prefix(), target); };
  if (!find_target()) return {TokenTree::kNone, Accepted::kNoToken};
  double mass = 1;
  int32_t child = parent;
  for (int32_t trial = 0; child < last_drawn; ++trial) {
    child = tree.next_child(parent, child);
    const Draw draw = tree[child].draw;
    const int32_t id = tree[child].id;
    const bool is_certain = draw.distribution == Draw::kCertain;
    const double q = is_certain ? 1 : static_cast<double>(draft[draw.distribution].prob_of(id)) / draw.mass;
    if (random.uniform(walk.position(), Purpose::kAccept, trial) * q * mass < target.prob_of(id)) return {child, id};
    if (is_certain) {
      target.set_prob(id, 0);
      mass = target.mass();
    } else {
      mass = target.subtract(draft[draw.distribution], static_cast<float>(mass / draw.mass));
    }
    // p equal to q but for rounding leaves nothing: then a rejection is rounding too, and p itself is the residual.
    if (!(mass > 0)) {
      find_target();
      break;
    }
  }
  const int32_t id = target.sample(random.uniform(walk.position(), Purpose::kTarget));
  return {tree.find_child(parent, id), id};
}

}  // namespace

Accepted accept_greedy(const Verification& verification) {
  Walk walk(verification);
  for (;;) {
    const std::span<const float> scores = verification.chooser.scores(walk.logits(), walk.prefix());
    if (scores.empty()) return walk.end_without_token();
    const int32_t best = find_peak(scores).index;
    const int32_t child = verification.tree.find_child(walk.at(), best);
    if (child == TokenTree::kNone) return walk.end(best);
    walk.keep(child);
    if (verification.chooser.ends_text(best)) return walk.end(best);
  }
}

Accepted accept_sampled(const Verification& verification, std::span<const Distribution> draft,
                        const RandomStream& random, Distribution& scratch) {
  Walk walk(verification);
  for (;;) {
    const Step step = decide(verification, draft, random, walk, scratch);
    if (step.id == Accepted::kNoToken) return walk.end_without_token();
    if (step.child == TokenTree::kNone) return walk.end(step.id);
    walk.keep(step.child);
    if (verification.chooser.ends_text(step.id)) return walk.end(step.id);
  }
}

}  // namespace pilotfish
