// Lossless multi-step speculative sampling: Leviathan et al., "Fast inference from transformers via speculative
// decoding", 2023, and Chen et al., "Accelerating large language model decoding with speculative sampling", 2023, for a
// chain; Miao et al., "SpecInfer", 2024, algorithm 2, for trees. Drafters draw one child at most, beside
// certain ones; the rule holds for any number of siblings that are drawn without replacement.
//
// At a token with drawn children x1, x2, ... let p1 = p be the target's distribution, and q1, q2, ... what each child
// was drawn from: its draft's distribution without its elder siblings, renormalised. They are tried in turn: child i is
// kept with probability min(1, pi(xi) / qi(xi)), or else p(i+1) is max(pi - qi, 0), renormalised. When none is left the
// token is drawn from what p has become. The outcome is distributed as p: given what was drawn before, xi has
// distribution qi, so by the argument for a chain [Leviathan, appendix A.1] keeping xi or else drawing from p(i+1) is
// drawing from pi; by induction from the last child to the first, the whole is drawing from p1. It does not matter how
// many children there are, of which draft each qi is, nor what was drawn below the siblings, as long
// as nobody looks at xi before deciding that it is to be in the tree. A sibling that was rejected has pi = 0 from then
// on, so that a token is never tried twice.
//
// A certain child, one that its drafter named without drawing, has the qi that is 1 at xi: it is kept with probability
// pi(xi), or else pi(xi) becomes 0. Where all children that are left are certain, this is the same as to draw from pi
// and look whether a child was drawn, which is what happens.

#include "round/accept.h"
#include "round/accept_walk.h"

namespace pilotfish {
namespace {

using Purpose = RandomStream::Purpose;

int32_t last_drawn_child(const TokenTree& tree, int32_t parent) {
  int32_t last = TokenTree::kNone;
  for (int32_t i = tree.next_child(parent, parent); i != TokenTree::kNone; i = tree.next_child(parent, i)) {
    if (tree[i].draw.distribution != Draw::kCertain) last = i;
  }
  return last;
}

// What a step down the tree decides.
struct Decision {
  int32_t child;  // TokenTree::kNone: the path ends here, and `id` follows it
  int32_t id;     // Accepted::kNoToken: none may
};

// Tries the children up to the last drawn one; the rest is up to a draw from what the distribution has become.
Decision decide(const Verification& verification, std::span<const Distribution> draft, const RandomStream& random,
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

Accepted accept_rejection(const Verification& verification, std::span<const Distribution> draft,
                          const RandomStream& random, Distribution& scratch) {
  Walk walk(verification);
  for (;;) {
    const Decision decision = decide(verification, draft, random, walk, scratch);
    if (decision.id == Accepted::kNoToken) return walk.end_without_token();
    if (decision.child == TokenTree::kNone) return walk.end(decision.id);
    walk.keep(decision.child);
    if (verification.chooser.ends_text(decision.id)) return walk.end(decision.id);
  }
}

}  // namespace pilotfish
