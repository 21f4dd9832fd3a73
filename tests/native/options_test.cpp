// Each wrong option of a generation has its message, which names the value and
// the limit.
#include "engine/options.h"

#include <array>
#include <limits>
#include <string>

#include "check.h"
#include "sampling/sampling_options.h"

namespace {

constexpr int32_t kNumIds = 4;
constexpr int32_t kRoom = 8;  // max_draft_tokens
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

void check_all(const pf_generate_options& options) {
  pilotfish::check_options(options, kRoom);
  pilotfish::check_option_ids(options, kNumIds);
}

#define REFUSED(field, value, message)                                   \
  do {                                                                   \
    pf_generate_options options = pilotfish::default_generate_options(); \
    options.field = value;                                               \
    CHECK_ERROR(PF_INVALID_ARGUMENT, message, check_all(options));       \
  } while (false)

void test_numbers() {
  check_all(pilotfish::default_generate_options());
  REFUSED(struct_size, 3, "pf_generate_options.struct_size is 3, this library's has");
  REFUSED(max_new_tokens, 0, "max_new_tokens is 0, allowed are 1 to 4194304");
  REFUSED(num_draft_tokens, 9, "num_draft_tokens is 9, allowed are -1 to 8");
  REFUSED(ignore_eos, 2, "ignore_eos is 2, allowed are 0 to 1");
  REFUSED(draft_source, 7, "draft_source is 7, allowed are 0 to 6");
  REFUSED(reuse_prefix, -1, "reuse_prefix is -1, allowed are 0 to 1");
  REFUSED(temperature, kNan, "temperature is nan, not in [0, 100]");
  REFUSED(temperature, -1, "temperature is -1, not in [0, 100]");
  REFUSED(temperature, 100.5f, "temperature is 100.5, not in [0, 100]");
  REFUSED(top_k, -1, "top_k is -1, allowed are 0 to 2147483647");
  REFUSED(top_p, 0, "top_p is 0, not in (0, 1]");
  REFUSED(min_p, 1, "min_p is 1, not in [0, 1)");
  REFUSED(typical_p, kNan, "typical_p is nan, not in (0, 1]");
  REFUSED(repetition_penalty, 0, "repetition_penalty is 0, not in (0, 100]");
  REFUSED(presence_penalty, 101, "presence_penalty is 101, not in [-100, 100]");
  REFUSED(frequency_penalty, kNan, "frequency_penalty is nan, not in [-100, 100]");
  REFUSED(penalty_window, -1, "penalty_window is -1");
  REFUSED(no_repeat_ngram_size, -1, "no_repeat_ngram_size is -1");
  REFUSED(min_new_tokens, -1, "min_new_tokens is -1");
  REFUSED(num_top_logprobs, 257, "num_top_logprobs is 257, allowed are 0 to 256");
  REFUSED(echo, 2, "echo is 2");
}

// A dynamic tree without a depth has the default one, or as many levels as it
// has tokens.
void test_depth_of_a_dynamic_tree() {
  for (const auto& [nodes, depth, expected] : {std::array{8, 0, 6}, std::array{4, 0, 4}, std::array{8, 8, 8}}) {
    pf_generate_options options = pilotfish::default_generate_options();
    options.tree_nodes = nodes;
    options.tree_depth = depth;
    check_all(options);
    CHECK_EQ(pilotfish::tree_limits(options).max_depth, expected);
    options.tree_depth = nodes + 1;
    CHECK_ERROR(PF_INVALID_ARGUMENT, "tree_depth is " + std::to_string(nodes + 1) + ", allowed are 0 to",
                check_all(options));
  }
}

void test_arrays() {
  REFUSED(num_logit_bias, 1, "logit_bias is NULL");
  REFUSED(num_stop_ids, 1, "stop_ids is NULL");
  pf_generate_options options = pilotfish::default_generate_options();
  const pf_logit_bias twice[] = {{2, 1}, {2, 1}}, outside = {4, 1}, infinite = {1, kInfinity};
  options.logit_bias = twice;
  options.num_logit_bias = 2;
  CHECK_ERROR(PF_INVALID_ARGUMENT, "logit_bias has id 2 twice", check_all(options));
  options.logit_bias = &outside;
  options.num_logit_bias = 1;
  CHECK_ERROR(PF_INVALID_ARGUMENT, "logit_bias has id 4, outside the vocabulary of 4", check_all(options));
  options.logit_bias = &infinite;
  CHECK_ERROR(PF_INVALID_ARGUMENT, "logit_bias of id 1 is inf, must be a number or -inf", check_all(options));
  options = pilotfish::default_generate_options();
  const int32_t stop_id = -1;
  options.stop_ids = &stop_id;
  options.num_stop_ids = 1;
  CHECK_ERROR(PF_INVALID_ARGUMENT, "stop_ids has id -1, outside the vocabulary of 4", check_all(options));
}

void test_options_that_contradict_each_other() {
  pf_generate_options options = pilotfish::default_generate_options();
  options.max_new_tokens = 10;
  options.min_new_tokens = 11;
  CHECK_ERROR(PF_INVALID_ARGUMENT, "min_new_tokens is 11, more than max_new_tokens, which is 10", check_all(options));
}

}  // namespace

int main() {
  test_numbers();
  test_depth_of_a_dynamic_tree();
  test_arrays();
  test_options_that_contradict_each_other();
  return check::result();
}
