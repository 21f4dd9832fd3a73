#include "token_chooser.h"

namespace pilotfish {

std::span<const float> TokenChooser::scores(std::span<const float> logits, const Prefix&) { return logits; }

void TokenChooser::distribution(std::span<const float> logits, const Prefix& prefix, Distribution& out) {
  sampler_.process(scores(logits, prefix), options_, out);
}

}  // namespace pilotfish
