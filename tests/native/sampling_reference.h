// What a sampler is compared with: a full sort and one filter after the other, each over the renormalised rest, in
// double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "sampling/sampler.h"

namespace sampling_reference {

// Probabilities of the ids that the options leave. `slack` moves the thresholds of top_p, min_p and typical_p by so
// much of their value: a token that lies on one may be on either side in single precision.
inline std::map<int32_t, double> distribution(const std::vector<double>& scores,
                                              const pilotfish::SamplingOptions& options, double slack = 0) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int32_t id) { return scores[id] == -std::numeric_limits<double>::infinity(); });
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  if (options.top_k > 0 && options.top_k < static_cast<int32_t>(order.size())) {
    const double least = scores[order[options.top_k - 1]];
    std::erase_if(order, [&](int32_t id) { return scores[id] < least; });
  }
  const auto weight = [&, peak = scores[order[0]]](int32_t id) {
    return std::exp((scores[id] - peak) / options.temperature);
  };
  const auto total = [&] {
    return std::accumulate(order.begin(), order.end(), 0.0, [&](double sum, int32_t id) { return sum + weight(id); });
  };
  // Keeps the first tokens of the order that reach this share.
  const auto keep_share = [&](double share) {
    double left = share * (1 + slack) * total();
    size_t kept = 0;
    while (kept < order.size() && left > 0) left -= weight(order[kept++]);
    order.resize(kept);
  };
  if (options.top_p < 1) keep_share(options.top_p);
  std::erase_if(order, [&](int32_t id) { return weight(id) < options.min_p * (1 - slack); });
  if (options.typical_p < 1) {
    const double mass = total();
    double entropy = 0;
    for (const int32_t id : order) entropy -= weight(id) / mass * std::log(weight(id) / mass);
    const auto distance = [&](int32_t id) { return std::abs(-std::log(weight(id) / mass) - entropy); };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return distance(a) < distance(b); });
    keep_share(options.typical_p);
  }
  std::map<int32_t, double> probs;
  for (const int32_t id : order) probs[id] = weight(id) / total();
  return probs;
}

}  // namespace sampling_reference
