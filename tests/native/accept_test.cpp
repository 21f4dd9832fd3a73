#include "round/accept.h"

#include <string>
#include <vector>

#include "check.h"
#include "chi_square.h"
#include "toy_target.h"

namespace {

using pilotfish::Accepted;
using pilotfish::Distribution;
using pilotfish::Logits;
using pilotfish::RandomStream;
using pilotfish::Sampler;
using pilotfish::SamplingOptions;
using pilotfish::TokenChooser;
using pilotfish::TokenTree;

using check::chi_square;
using check::kChiSquareLimit;
using check::logs;
using check::Probs;

Logits view(const std::vector<float>& logits, int32_t vocab_size) {
  return {logits.data(), static_cast<int32_t>(logits.size()) / vocab_size, vocab_size};
}

TokenTree chain(const std::vector<int32_t>& ids) {
  TokenTree tree;
  for (size_t i = 0; i < ids.size(); ++i) tree.add(ids[i], static_cast<int32_t>(i) - 1);
  return tree;
}

// A chain whose token i was drawn from distribution i.
TokenTree drawn_chain(const std::vector<int32_t>& ids) {
  TokenTree tree = chain(ids);
  for (int32_t i = 0; i < tree.size(); ++i) tree.set_draw(i, {.distribution = i, .mass = 1});
  return tree;
}

struct Expected {
  int32_t num_accepted;
  int32_t next_id;
};

void check_greedy(const TokenTree& tree, const std::vector<float>& logits, Expected expected) {
  Sampler sampler(4);
  TokenChooser chooser({}, sampler);
  const Accepted found = pilotfish::accept_equal(
      {.tree = tree, .target = view(logits, 4), .num_ids = 3, .tokens = {}, .chooser = chooser});
  CHECK_EQ(found.num_accepted, expected.num_accepted);
  CHECK_EQ(found.next_id, expected.next_id);
}

// Rows of four logits of which the last belongs to no token.
void test_greedy() {
  const std::vector<float> logits{0, 5, 1, 9, /**/ 7, 2, 7, 9, /**/ 1, 2, 3, 9};
  check_greedy(chain({1, 0}), logits, {2, 2});    // all kept, and a bonus
  check_greedy(chain({1, 2}), logits, {1, 0});    // the tie at row 1 goes to the lower id
  check_greedy(chain({2, 0}), logits, {0, 1});    // nothing kept, whatever follows
  check_greedy(chain({}), {0, 5, 1, 9}, {0, 1});  // plain decoding
}

// Two tokens are drafted from q and go through acceptance; whatever comes out
// must be distributed as if both had been drawn from the target: first by
// `first`, second by second[first token].
void check_distribution(const std::string& name, const Probs& q, const Probs& first, const std::vector<Probs>& second,
                        const SamplingOptions& options) {
  constexpr int kNumRequests = 40000;
  const auto vocab_size = static_cast<int32_t>(first.size());
  Sampler sampler(vocab_size);
  TokenChooser chooser(options, sampler);
  const std::vector<int32_t> before(10);  // tokens of the sequence
  std::vector<Distribution> draft(2);
  sampler.process(logs({q}), options, draft[0]);
  draft[1] = draft[0];
  Distribution scratch;
  std::vector<int> first_counts(vocab_size);
  std::vector<std::vector<int>> second_counts(vocab_size, std::vector<int>(vocab_size));
  int num_accepted = 0;
  for (int seed = 0; seed < kNumRequests; ++seed) {
    const RandomStream random(seed);
    const std::vector<int32_t> drafted{draft[0].sample(random.uniform(10, RandomStream::Purpose::kDraft)),
                                       draft[1].sample(random.uniform(11, RandomStream::Purpose::kDraft))};
    // The target's rows condition on the drafted tokens; the third row is not
    // looked at by this test.
    const std::vector<float> logits = logs({first, second[drafted[0]], first});
    const Accepted accepted = pilotfish::accept_rejection({.tree = drawn_chain(drafted),
                                                           .target = view(logits, vocab_size),
                                                           .num_ids = vocab_size,
                                                           .tokens = before,
                                                           .chooser = chooser},
                                                          draft, random, scratch);
    num_accepted += accepted.num_accepted;
    const int32_t id = accepted.num_accepted > 0 ? drafted[0] : accepted.next_id;
    ++first_counts[id];
    if (accepted.num_accepted > 0) ++second_counts[id][accepted.num_accepted > 1 ? drafted[1] : accepted.next_id];
  }
  const double found = chi_square(first_counts, first, kNumRequests);
  if (!(found < kChiSquareLimit)) check::failed(__FILE__, __LINE__, name, ": chi-square of the first token is ", found);
  for (int32_t id = 0; id < vocab_size; ++id) {
    int total = 0;
    for (const int count : second_counts[id]) total += count;
    if (total < 1000) continue;
    const double next = chi_square(second_counts[id], second[id], total);
    if (!(next < kChiSquareLimit)) check::failed(__FILE__, __LINE__, name, ": chi-square after ", id, " is ", next);
  }
  if (name == "equal") CHECK(num_accepted > kNumRequests);
  if (name == "disjoint") CHECK_EQ(num_accepted, 0);
}

void test_sampled_tokens_follow_the_target() {
  const Probs& target = check::kFirst;
  std::vector<Probs> next;
  for (int32_t id = 0; id < check::kNumIds; ++id) next.push_back(check::second_after(id));
  const SamplingOptions plain{.temperature = 1};
  check_distribution("equal", target, target, next, plain);
  check_distribution("near", {0.06f, 0.09f, 0.2f, 0.15f, 0.25f, 0.25f}, target, next, plain);
  check_distribution("far", {0.6f, 0.3f, 0.05f, 0.03f, 0.01f, 0.01f}, target, next, plain);
  const Probs left{0.5f, 0.3f, 0.2f, 0, 0, 0};
  check_distribution("disjoint", {0, 0, 0, 0.4f, 0.3f, 0.3f}, left, std::vector<Probs>(6, left), plain);
  check_distribution("draft misses a token", {0, 0.2f, 0.2f, 0.2f, 0.2f, 0.2f}, target, next, plain);
  const Probs trimmed{0.2f, 0.2f, 0.3f, 0.3f};  // scores only the first four of the ids
  check_distribution("trimmed draft", trimmed, target, next, plain);
  check_distribution("trimmed draft, sparse", trimmed, target, next, {.temperature = 1, .top_k = 6});
  // min_p this small keeps everything but goes through the lists of candidates.
  check_distribution("sparse", {0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.5f}, target, next, {.temperature = 1, .min_p = 1e-6f});
}

void test_a_filtered_target_never_emits_what_it_filters() {
  const Probs q{0.3f, 0.3f, 0.2f, 0.2f};
  const Probs p{0.4f, 0.3f, 0.2f, 0.1f};
  const SamplingOptions options{.temperature = 1, .top_k = 2};
  Sampler sampler(4);
  TokenChooser chooser(options, sampler);
  std::vector<Distribution> draft(1);
  sampler.process(logs({q}), {.temperature = 1, .min_p = 1e-6f}, draft[0]);
  Distribution scratch;
  const std::vector<float> logits = logs({p, p});
  for (int seed = 0; seed < 2000; ++seed) {
    const RandomStream random(seed);
    const std::vector<int32_t> drafted{draft[0].sample(random.uniform(0, RandomStream::Purpose::kDraft))};
    const Accepted accepted = pilotfish::accept_rejection(
        {.tree = drawn_chain(drafted), .target = view(logits, 4), .num_ids = 4, .tokens = {}, .chooser = chooser},
        draft, random, scratch);
    CHECK(accepted.next_id < 2);
    CHECK(accepted.num_accepted == 0 || drafted[0] < 2);
  }
}

// A mask under which tokens may follow the sequence, and none may follow a drafted one.
int32_t allow_one_token(void*, const int32_t*, size_t num_path, uint32_t* mask_out) {
  mask_out[0] = num_path == 0 ? 0xF : 0;
  return 0;
}

int32_t allow_nothing(void*, const int32_t*, size_t, uint32_t*) { return 0; }

// What was accepted is given before the error, which comes where nothing was.
void test_no_token_after_what_was_accepted() {
  const std::vector<float> logits = logs({Probs{0, 1, 0, 0}, Probs{1, 0, 0, 0}});
  const TokenTree tree = chain({1});
  Distribution scratch;
  for (const float temperature : {0.0f, 1.0f}) {
    for (const pf_mask_callback mask : {allow_one_token, allow_nothing}) {
      Sampler sampler(4);
      TokenChooser chooser({.temperature = temperature}, sampler, {.mask = mask}, {1, 10, 4});
      const pilotfish::Verification verification{
          .tree = tree, .target = view(logits, 4), .num_ids = 4, .tokens = {}, .chooser = chooser};
      const auto accept = [&](bool is_typical) {
        if (temperature == 0) return pilotfish::accept_equal(verification);
        if (is_typical) return pilotfish::accept_typical(verification, {0.1f, 0.1f}, scratch);
        return pilotfish::accept_rejection(verification, {}, RandomStream(1), scratch);
      };
      for (const bool is_typical : {false, true}) {
        if (mask == allow_nothing) {
          CHECK_ERROR(PF_NO_TOKEN_LEFT, "these ban every id: mask", accept(is_typical));
          continue;
        }
        const Accepted found = accept(is_typical);
        CHECK_EQ(found.num_accepted, 1);
        CHECK_EQ(found.next_id, Accepted::kNoToken);
      }
    }
  }
}

}  // namespace

int main() {
  test_greedy();
  test_no_token_after_what_was_accepted();
  test_sampled_tokens_follow_the_target();
  test_a_filtered_target_never_emits_what_it_filters();
  return check::result();
}
