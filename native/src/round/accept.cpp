#include "round/accept.h"

#include "round/accept_walk.h"

namespace pilotfish {

Accepted accept_equal(const Verification& verification) {
  Walk walk(verification);
  for (;;) {
    const int32_t id = verification.chooser.choose(walk.logits(), walk.prefix());
    if (id == TokenChooser::kNoToken) return walk.end_without_token();
    const int32_t child = verification.tree.find_child(walk.at(), id);
    if (child == TokenTree::kNone) return walk.end(id);
    walk.keep(child);
    if (verification.chooser.ends_text(id)) return walk.end(id);
  }
}

}  // namespace pilotfish
