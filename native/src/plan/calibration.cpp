#include "plan/calibration.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/platform/library.h"
#include "base/platform/processor.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/token_tree.h"
#include "device/chain_lengths.h"
#include "instruction_set.h"
#include "pilotfish.h"

namespace pilotfish {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr double kEnoughSeconds = 0.7;
constexpr double kMostSeconds = 2.5;  // where the machine is busy with something else
constexpr int kLeastSweeps = 3;
constexpr double kSlowPass = 0.02;  // seconds of one row: fewer row counts are measured
constexpr int kMostSweeps = 15;
constexpr std::array<int32_t, 2> kContexts{32, 512};
constexpr size_t kMostFileBytes = 1 << 20;
constexpr const char* kFormat = "pilotfish-calibration 2";

double seconds_of(const std::function<void()>& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int32_t> up_to(std::initializer_list<int32_t> wanted, int32_t most) {
  std::vector<int32_t> rows;
  for (const int32_t count : wanted) {
    if (count < most) rows.push_back(count);
  }
  rows.push_back(most);
  return rows;
}

// One model's passes, and the times of each.
struct Series {
  const TimedPass& run;
  const TimedPass* before = nullptr;  // each of them, not timed
  int32_t num_passes = 1;             // that `run` runs
  PassCosts costs;
  std::array<std::vector<std::vector<double>>, 2> times;  // [contexts][rows][sweeps]

  Series(const TimedPass& pass, std::vector<int32_t> rows, int32_t max_context) : run(pass) {
    costs.rows = std::move(rows);
    const int32_t most = std::max(max_context - costs.rows.back(), 0);
    for (size_t i = 0; i < kContexts.size(); ++i) {
      costs.contexts[i] = std::min(kContexts[i], most);
      times[i].resize(costs.rows.size());
    }
    // The first pass of a shape prepares what later ones use.
    for (const int32_t num_rows : costs.rows) run(num_rows, costs.contexts[0]);
  }

  void sweep() {
    for (size_t i = 0; i < kContexts.size(); ++i) {
      for (size_t j = 0; j < costs.rows.size(); ++j) {
        if (before && *before) (*before)(1, costs.contexts[i]);
        times[i][j].push_back(seconds_of([&] { run(costs.rows[j], costs.contexts[i]); }));
      }
    }
  }

  // What a pass takes when nothing disturbs it: other work on the machine only ever adds.
  PassCosts finish() {
    for (size_t i = 0; i < kContexts.size(); ++i) {
      for (std::vector<double>& of_rows : times[i]) {
        costs.seconds[i].push_back(*std::min_element(of_rows.begin(), of_rows.end()) / num_passes);
      }
    }
    costs.smooth();
    return std::move(costs);
  }
};

// Those of a source of drafts.
struct SourceSeries {
  Series begin;
  std::optional<Series> level;
  int32_t begin_levels;

  // First passes of a few rows follow a round. Those of a prompt mostly have a number of rows that a device has not
  // seen and so has not recorded, as it never records more than kMostRecordedRows.
  SourceSeries(const TimedSource& source, int32_t max_context)
      : begin(source.begin, up_to({1, 2, 4, 8, kMostRecordedRows + 1, 128}, source.most_begun), max_context),
        begin_levels(source.begin_levels) {
    begin.before = &source.before;
    if (!source.level) return;
    level.emplace(source.level, up_to({1, 2, 4, 8}, source.most_continued), max_context);
    level->num_passes = source.num_levels;
  }

  void sweep() {
    begin.sweep();
    if (level) level->sweep();
  }

  // A source without further passes has none that cost anything.
  DraftCosts finish() {
    DraftCosts costs{.begin = begin.finish(), .level = {}, .begin_levels = begin_levels};
    costs.level = level ? level->finish() : PassCosts{.rows = {1}, .contexts = {0, 0}, .seconds = {{{0}, {0}}}};
    return costs;
  }
};

std::string library_hash() {
  const std::filesystem::path own = platform::file_of(reinterpret_cast<const void*>(&library_hash));
  if (own.empty()) return PF_VERSION;
  std::ifstream file(own, std::ios::binary);
  Sha256 hash;
  std::array<char, 1 << 16> bytes;
  while (file.read(bytes.data(), bytes.size()) || file.gcount() > 0) hash.update(bytes.data(), file.gcount());
  return hash.finish();
}

Json to_json(const PassCosts& costs) {
  return {{"rows", costs.rows}, {"contexts", costs.contexts}, {"seconds", costs.seconds}};
}

PassCosts from_json(const Json& json, double least = 1e-12) {
  PassCosts costs{.rows = json.at("rows"), .contexts = json.at("contexts"), .seconds = json.at("seconds")};
  bool valid = !costs.rows.empty() && costs.rows.front() > 0 && std::ranges::is_sorted(costs.rows) &&
               costs.contexts[0] >= 0 && costs.contexts[0] <= costs.contexts[1];
  for (const std::vector<double>& seconds : costs.seconds) {
    valid = valid && seconds.size() == costs.rows.size() &&
            std::all_of(seconds.begin(), seconds.end(), [&](double value) { return value >= least && value < 1e6; });
  }
  if (!valid) fail(PF_INTERNAL, "not a table of costs");
  return costs;
}

Json to_json(const DraftCosts& costs) {
  return {{"begin", to_json(costs.begin)}, {"level", to_json(costs.level)}, {"begin_levels", costs.begin_levels}};
}

std::optional<DraftCosts> find_source(const Json& json, const char* name) {
  if (!json.contains(name)) return std::nullopt;
  const Json& found = json.at(name);
  const auto begin_levels = found.at("begin_levels").get<int64_t>();
  if (begin_levels < 1 || begin_levels > TokenTree::kMaxTokens) fail(PF_INTERNAL, "not levels of a tree");
  return DraftCosts{.begin = from_json(found.at("begin")),
                    .level = from_json(found.at("level"), 0),
                    .begin_levels = static_cast<int32_t>(begin_levels)};
}

}  // namespace

std::filesystem::path CalibrationFile::path() const {
  Sha256 hash;
  hash.update(key.data(), key.size());
  return folder / ("calibration-" + hash.finish().substr(0, 24) + ".json");
}

std::string describe_build_and_machine() {
  return platform::processor_name() + "; " + instruction_set_name(instruction_set()) + "; " + library_hash();
}

RoundCosts measure_costs(const TimedPasses& passes) {
  const auto start = Clock::now();
  passes.verify(1, 0);
  const bool is_slow = seconds_of([&] { passes.verify(1, 0); }) > kSlowPass;
  std::vector<int32_t> rows = passes.verified_rows;
  if (rows.empty()) {
    rows = is_slow ? up_to({1, 2, 4, 8}, passes.most_verified)
                   : up_to({1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48}, passes.most_verified);
  }
  Series verify(passes.verify, std::move(rows), passes.max_context);
  std::optional<Series> together;
  if (passes.together) together.emplace(passes.together, up_to({2, 4, 8}, passes.most_together), passes.max_context);
  std::optional<SourceSeries> draft, head;
  if (passes.draft) draft.emplace(*passes.draft, passes.max_context);
  if (passes.head) head.emplace(*passes.head, passes.max_context);
  // The sweeps alternate between the models, so that a slower moment falls on all of them.
  for (int i = 0; i < kMostSweeps; ++i) {
    verify.sweep();
    if (together) together->sweep();
    if (draft) draft->sweep();
    if (head) head->sweep();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds > (i + 1 < kLeastSweeps ? kMostSeconds : kEnoughSeconds)) break;
  }
  RoundCosts costs{.verify = verify.finish(), .draft = {}, .head = {}, .is_measured = true};
  if (draft) costs.draft = draft->finish();
  if (head) costs.head = head->finish();
  if (together) costs.together = together->finish();
  return costs;
}

std::optional<RoundCosts> read_costs(const CalibrationFile& file) {
  if (file.folder.empty()) return std::nullopt;
  try {
    const std::optional<std::string> content = read_file(file.path(), kMostFileBytes);
    if (!content) return std::nullopt;
    const Json json = Json::parse(*content);
    if (json.at("format") != kFormat || json.at("key") != file.key) return std::nullopt;
    return RoundCosts{
        .verify = from_json(json.at("verify")),
        .draft = find_source(json, "draft"),
        .head = find_source(json, "head"),
        .together = json.contains("together") ? std::optional(from_json(json.at("together"))) : std::nullopt,
        .is_measured = true};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void keep_costs(const CalibrationFile& file, const RoundCosts& costs) noexcept {
  if (file.folder.empty()) return;
  try {
    Json json{{"format", kFormat}, {"key", file.key}, {"verify", to_json(costs.verify)}};
    if (costs.draft) json["draft"] = to_json(*costs.draft);
    if (costs.head) json["head"] = to_json(*costs.head);
    if (costs.together) json["together"] = to_json(*costs.together);
    write_file(file.path(), json.dump(1) + "\n");
  } catch (const std::exception&) {
    // A cache that cannot be kept costs the next load a second.
  }
}

}  // namespace pilotfish
