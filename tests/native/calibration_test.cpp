#include "plan/calibration.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "check.h"

namespace {

using pilotfish::CalibrationFile;
using pilotfish::DraftCosts;
using pilotfish::PassCosts;
using pilotfish::RoundCosts;

PassCosts table() { return {.rows = {1, 4, 8}, .contexts = {0, 100}, .seconds = {{{1, 2, 4}, {2, 3, 5}}}}; }

void test_costs_between_and_beyond() {
  const PassCosts costs = table();
  CHECK_NEAR(costs.at(1, 0), 1, 1e-12);
  CHECK_NEAR(costs.at(8, 100), 5, 1e-12);
  CHECK_NEAR(costs.at(2, 0), 4.0 / 3, 1e-12);
  CHECK_NEAR(costs.at(4, 50), 2.5, 1e-12);
  CHECK_NEAR(costs.at(4, 300), 5, 1e-12);
  CHECK_NEAR(costs.at(16, 0), 8, 1e-12);
  CHECK(PassCosts({.rows = {1}, .contexts = {0, 0}, .seconds = {{{3}, {3}}}}).at(5, 7) == 3);
}

void test_noise_is_smoothed() {
  PassCosts costs{.rows = {1, 2, 3, 4}, .contexts = {0, 9}, .seconds = {{{1, 3, 2, 4}, {0.5, 1, 5, 5}}}};
  costs.smooth();
  CHECK(costs.seconds[0] == (std::vector<double>{1, 2.5, 2.5, 4}));
  CHECK(costs.seconds[1] == (std::vector<double>{1, 2.5, 5, 5}));  // nor does a longer context cost less
}

void test_a_guess_goes_by_the_bytes() {
  const RoundCosts costs = RoundCosts::guess(100, 10);
  CHECK(!costs.is_measured);
  CHECK_NEAR(costs.draft->begin.at(1, 0) / costs.verify.at(1, 0), 0.1, 1e-12);
  CHECK_NEAR(costs.verify.at(5, 700) / costs.verify.at(1, 700), 1.32, 1e-9);
  CHECK(!RoundCosts::guess(100, 0).draft);
}

void test_measures_what_passes_take() {
  using std::chrono::microseconds;
  int32_t most_rows = 0;
  const auto pass = [&](int32_t num_rows, int32_t context) {
    most_rows = std::max(most_rows, num_rows);
    CHECK(context + num_rows <= 200);
    std::this_thread::sleep_for(microseconds(200 + 50 * num_rows));
  };
  const auto start = std::chrono::steady_clock::now();
  const pilotfish::TimedSource draft{
      .begin = pass, .level = pass, .num_levels = 4, .most_begun = 32, .most_continued = 5};
  int32_t num_before = 0, num_begun = 0;
  const pilotfish::TimedSource head{.begin =
                                        [&](int32_t num_rows, int32_t context) {
                                          ++num_begun;
                                          pass(num_rows, context);
                                        },
                                    .level = {},
                                    .before =
                                        [&](int32_t, int32_t) {
                                          ++num_before;
                                          std::this_thread::sleep_for(microseconds(3000));
                                        },
                                    .begin_levels = 4,
                                    .most_begun = 1,
                                    .most_continued = 0};
  const RoundCosts costs = pilotfish::measure_costs({.verify = pass,
                                                     .most_verified = 9,
                                                     .verified_rows = {1, 7, 9},
                                                     .max_context = 200,
                                                     .draft = draft,
                                                     .head = head});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  CHECK(costs.is_measured);
  CHECK((costs.verify.rows == std::vector<int32_t>{1, 7, 9}));
  CHECK_EQ(costs.draft->begin.rows.back(), 32);
  CHECK_EQ(costs.draft->level.rows.back(), 5);
  CHECK_EQ(most_rows, 32);
  CHECK(costs.verify.at(1, 50) >= 250e-6);
  CHECK(costs.draft->begin.at(32, 50) >= 1800e-6);
  // Four levels in one go.
  CHECK(costs.draft->level.at(5, 50) >= 112e-6);
  CHECK(costs.draft->level.at(5, 50) < 0.5 * costs.draft->begin.at(5, 50));
  // Four levels of a head in one pass, and no other passes.
  CHECK(costs.head->begin.at(1, 50) >= 250e-6);
  // What runs before a pass is not part of it; the very first one only
  // prepares.
  CHECK_EQ(num_before, num_begun - 1);
  CHECK(costs.head->begin.at(1, 50) < 3000e-6);
  CHECK_EQ(costs.head->drafting(1, 4, 8, 50), costs.head->begin.at(1, 50));
}

void test_costs_are_kept() {
  const auto folder = std::filesystem::temp_directory_path() / ("pilotfish-costs-" + std::to_string(::getpid()));
  const CalibrationFile file{folder / "made", "some machine"};
  CHECK(!pilotfish::read_costs(file));
  const DraftCosts draft{.begin = table(), .level = table(), .begin_levels = 3};
  const RoundCosts costs{.verify = table(), .draft = {}, .head = draft, .is_measured = true};
  pilotfish::keep_costs(file, costs);
  const auto found = pilotfish::read_costs(file);
  CHECK(found && found->verify.seconds == table().seconds && found->head->level.rows == table().rows);
  CHECK(!found->draft && found->head->begin_levels == 3);
  CHECK(!pilotfish::read_costs({file.folder, "another machine"}));
  CHECK(!pilotfish::read_costs({"", "some machine"}));
  for (const char* content : {"", "{", "[]", "{\"format\": 1}",
                              "{\"format\": \"pilotfish-calibration 2\", \"key\": \"some machine\", "
                              "\"verify\": "
                              "{\"rows\": [1], \"contexts\": [0, 1], \"seconds\": [[0], [1]]}}"}) {
    std::ofstream(file.path()) << content;
    CHECK(!pilotfish::read_costs(file));
  }
  for (const auto& [from, to] : {std::pair("\"begin_levels\": 3", "\"begin_levels\": -2147483648"),
                                 std::pair("\"begin_levels\": 3", "\"begin_levels\": 4294967297")}) {
    pilotfish::keep_costs(file, costs);
    std::ifstream kept(file.path());
    std::string content{std::istreambuf_iterator<char>(kept), std::istreambuf_iterator<char>()};
    const size_t at = content.find(from);
    CHECK(at != std::string::npos && pilotfish::read_costs(file));
    std::ofstream(file.path()) << content.replace(at, std::string(from).size(), to);
    CHECK(!pilotfish::read_costs(file));
  }
  // A folder that is a file keeps nothing, and nobody minds.
  pilotfish::keep_costs({file.path(), "some machine"}, costs);
  CHECK(!pilotfish::read_costs({file.path(), "some machine"}));
  std::filesystem::remove_all(folder);
}

void test_the_build_is_described() {
  const std::string found = pilotfish::describe_build_and_machine();
  CHECK(found.size() > 64 && found == pilotfish::describe_build_and_machine());
}

}  // namespace

int main() {
  test_costs_between_and_beyond();
  test_noise_is_smoothed();
  test_a_guess_goes_by_the_bytes();
  test_measures_what_passes_take();
  test_costs_are_kept();
  test_the_build_is_described();
  return check::result();
}
