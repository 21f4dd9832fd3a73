#include "plan/round_costs.h"

#include <algorithm>

namespace pilotfish {
namespace {

constexpr double kGuessedRowCost = 0.08;
constexpr double kGuessedBytesPerSecond = 20e9;

double between(double low_x, double low, double high_x, double high, double x) noexcept {
  return high_x == low_x ? low : low + (high - low) * (x - low_x) / (high_x - low_x);
}

PassCosts guess_passes(uint64_t bytes) {
  const double seconds = static_cast<double>(bytes) / kGuessedBytesPerSecond;
  PassCosts costs{.rows = {1, 2}, .contexts = {0, 0}, .seconds = {}};
  for (std::vector<double>& at_context : costs.seconds) at_context = {seconds, seconds * (1 + kGuessedRowCost)};
  return costs;
}

void make_ascending(std::vector<double>& values) {
  // Pool adjacent violators: neighbours in the wrong order become their mean.
  struct Pool {
    double sum;
    size_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const double value : values) {
    pools.push_back({value, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back() = {pools.back().sum + last.sum, pools.back().count + last.count};
    }
  }
  auto value = values.begin();
  for (const Pool& pool : pools) value = std::fill_n(value, pool.count, pool.mean());
}

}  // namespace

double PassCosts::at(int32_t num_rows, int32_t context) const noexcept {
  size_t high = std::lower_bound(rows.begin(), rows.end(), num_rows) - rows.begin();
  high = std::clamp<size_t>(high, rows.size() > 1 ? 1 : 0, rows.size() - 1);
  const size_t low = high > 0 ? high - 1 : 0;
  std::array<double, 2> ends;
  for (size_t i = 0; i < 2; ++i) ends[i] = between(rows[low], seconds[i][low], rows[high], seconds[i][high], num_rows);
  return std::max(between(contexts[0], ends[0], contexts[1], ends[1], context), 0.5 * std::min(ends[0], ends[1]));
}

void PassCosts::smooth() {
  for (std::vector<double>& at_context : seconds) make_ascending(at_context);
  for (size_t i = 0; i < rows.size(); ++i) seconds[1][i] = std::max(seconds[0][i], seconds[1][i]);
}

DraftCosts DraftCosts::guess(uint64_t pass_bytes) {
  return {.begin = guess_passes(pass_bytes), .level = guess_passes(pass_bytes)};
}

double DraftCosts::drafting(int32_t num_behind, int32_t levels, int32_t width, int32_t context) const noexcept {
  const int32_t num_passes = std::max(levels - begin_levels, 0);
  return begin.at(num_behind, context) + (num_passes > 0 ? num_passes * level.at(width, context) : 0);
}

// What attention to several contexts takes beyond that to one does not depend much on the rows that each has.
double RoundCosts::verifying(int32_t num_sequences, int32_t rows_each, int32_t context) const noexcept {
  const double seconds = verify.at(num_sequences * rows_each, context);
  if (num_sequences == 1 || !together) return seconds;
  return seconds + std::max(together->at(num_sequences, context) - verify.at(num_sequences, context), 0.0);
}

RoundCosts RoundCosts::guess(uint64_t target_pass_bytes, uint64_t draft_pass_bytes) {
  RoundCosts costs{.verify = guess_passes(target_pass_bytes), .draft = {}, .head = {}};
  if (draft_pass_bytes > 0) costs.draft = DraftCosts::guess(draft_pass_bytes);
  return costs;
}

}  // namespace pilotfish
