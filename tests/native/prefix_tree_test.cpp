#include "memory/prefix_tree.h"

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "check.h"

namespace {

using pilotfish::BlockPool;
using pilotfish::CachedPrefix;
using pilotfish::num_blocks_for;
using pilotfish::PrefixTree;
using pilotfish::Reservation;
using pilotfish::Sequence;

constexpr int32_t kBlockSize = 4;
using Tokens = std::vector<int32_t>;

// A model's pages: what each slot holds. Keys and values follow from all tokens
// up to the slot, so that is what stands there, as a hash.
using Pages = std::vector<uint64_t>;

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = 14695981039346656037u;
  for (const int32_t token : tokens) hash = (hash ^ uint64_t(token + 1)) * 1099511628211u;
  return hash;
}

struct Open {
  Tokens tokens;  // the prompt, then what was decoded
  std::unique_ptr<Sequence> sequence;
  int32_t first_own = 0;  // token from which on the blocks are its own
};

struct World {
  explicit World(int32_t num_blocks, int32_t lookahead_tokens = 0)
      : pool(num_blocks), tree(pool, kBlockSize, lookahead_tokens), lookahead(lookahead_tokens) {
    for (Pages* const pages : {&target, &draft, &head}) pages->assign(num_blocks * kBlockSize, 0);
  }

  // Opens a sequence and checks that its blocks hold what it was told they
  // hold.
  Open open(const Tokens& prompt, int32_t max_tokens, int32_t num_own = 0) {
    const PrefixTree::Match match = tree.find(std::span(prompt).first(prompt.size() - 1));
    auto adopted = tree.adopt(match, num_blocks_for(max_tokens, kBlockSize), num_own);
    for (const PrefixTree::BlockCopy& copy : adopted.copies) {
      for (Pages* const pages : {&target, &draft, &head}) {
        std::copy_n(pages->begin() + copy.from * kBlockSize, kBlockSize, pages->begin() + copy.to * kBlockSize);
      }
    }
    CHECK(adopted.prefix.num_draft_tokens <= adopted.prefix.num_target_tokens);
    Open open{prompt, std::make_unique<Sequence>(pool, kBlockSize, max_tokens, std::move(adopted.prefix)),
              std::max(match.num_whole_blocks - num_own, 0) * kBlockSize};
    check_pages(open);
    return open;
  }

  uint64_t& slot(Pages& pages, const Open& open, int32_t index) const {
    return pages[open.sequence->block_table()[index / kBlockSize] * kBlockSize + index % kBlockSize];
  }

  // Runs tokens up to num_target through the target and up to num_draft through
  // the draft model, and the head as far as the tokens allow.
  void advance(Open& open, int32_t num_target, int32_t num_draft, bool runs_head = false) {
    const std::span<const int32_t> tokens(open.tokens);
    const int32_t from = open.sequence->num_target_tokens(), draft_from = open.sequence->num_draft_tokens();
    Reservation room(*open.sequence, num_target);
    for (int32_t i = from; i < num_target; ++i) slot(target, open, i) = hash_of(tokens.first(i + 1));
    for (int32_t i = draft_from; i < num_draft; ++i) slot(draft, open, i) = hash_of(tokens.first(i + 1));
    room.commit(num_target, num_draft);
    if (!runs_head) return;
    const int32_t num_head = std::max(num_target - 1, 0);
    for (int32_t i = open.sequence->num_head_tokens(); i < num_head; ++i) {
      slot(head, open, i) = hash_of(tokens.first(i + 2));
    }
    open.sequence->set_num_head_tokens(num_head);
  }

  void close(Open& open) {
    open.tokens.resize(open.sequence->num_target_tokens());
    CachedPrefix ended = open.sequence->hand_over();
    tree.retain(open.tokens, std::move(ended));
    open.sequence.reset();
  }

  void check_pages(const Open& open) {
    const std::span<const int32_t> tokens(open.tokens);
    for (int32_t i = 0; i < open.sequence->num_target_tokens(); ++i) {
      CHECK_EQ(slot(target, open, i), hash_of(tokens.first(i + 1)));
    }
    for (int32_t i = 0; i < open.sequence->num_draft_tokens(); ++i) {
      CHECK_EQ(slot(draft, open, i), hash_of(tokens.first(i + 1)));
    }
    for (int32_t i = 0; i < open.sequence->num_head_tokens(); ++i) {
      CHECK_EQ(slot(head, open, i), hash_of(tokens.first(i + 2)));
    }
  }

  void check(std::span<const Open> opened) const {
    std::vector<std::span<const int32_t>> tables;
    for (const Open& open : opened) tables.push_back(open.sequence->block_table());
    std::vector<int32_t> blocks;
    tree.append_blocks(blocks);
    tables.push_back(blocks);
    pool.check(tables);
  }

  BlockPool pool;
  PrefixTree tree;
  const int32_t lookahead;
  Pages target, draft, head;
};

Tokens count_to(int32_t count) {
  Tokens tokens(count);
  for (int32_t i = 0; i < count; ++i) tokens[i] = i;
  return tokens;
}

Open run(World& world, const Tokens& tokens, int32_t max_tokens) {
  Open open = world.open(tokens, max_tokens);
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  world.advance(open, num_tokens, num_tokens);
  return open;
}

void test_the_next_turn_starts_where_the_last_one_ended() {
  World world(16);
  Open first = run(world, count_to(10), 20);
  world.close(first);
  Open second = world.open(count_to(14), 30);
  CHECK_EQ(second.sequence->num_target_tokens(), 10);
  CHECK_EQ(second.sequence->num_draft_tokens(), 10);
  world.check(std::span(&second, 1));
}

void test_the_last_token_of_a_prompt_always_runs() {
  World world(16);
  Open first = run(world, count_to(8), 8);
  world.close(first);
  CHECK_EQ(world.open(count_to(8), 8).sequence->num_target_tokens(), 7);
}

// Slot i of a head's cache is of the tokens i and i + 1.
void test_a_heads_slots_are_shared_only_with_their_next_token() {
  World world(16, 1);
  Open first = world.open(count_to(13), 20);
  world.advance(first, 13, 0, true);
  const Tokens table(first.sequence->block_table().begin(), first.sequence->block_table().end());
  world.close(first);
  Open same = world.open(count_to(20), 20);
  CHECK_EQ(same.sequence->num_target_tokens(), 13);
  CHECK_EQ(same.sequence->num_head_tokens(), 12);
  Tokens prompt = count_to(20);
  for (size_t i = 8; i < prompt.size(); ++i) prompt[i] += 100;
  Open other = world.open(prompt, 20);
  CHECK_EQ(other.sequence->num_target_tokens(), 8);
  CHECK_EQ(other.sequence->num_head_tokens(), 7);
  CHECK_EQ(other.sequence->block_table()[0], table[0]);
  CHECK(other.sequence->block_table()[1] != table[1]);
  CHECK_EQ(world.open(count_to(6), 20).sequence->num_head_tokens(), 4);
}

void test_the_draft_is_restored_as_far_as_it_got() {
  World world(16);
  Open first = world.open(count_to(12), 20);
  world.advance(first, 12, 5);
  world.close(first);
  CHECK_EQ(world.open(count_to(20), 20).sequence->num_draft_tokens(), 5);
  CHECK_EQ(world.open(count_to(4), 20).sequence->num_draft_tokens(), 3);
}

// The models of a node get further one by one, and no later sequence without
// one of them takes that back.
void test_each_model_catches_up_for_all_that_share_a_node() {
  World world(32, 1);
  Open plain = world.open(count_to(14), 16);
  world.advance(plain, 14, 0);
  world.close(plain);
  Open drafted = world.open(count_to(14), 16);
  CHECK_EQ(drafted.sequence->num_draft_tokens(), 0);
  world.advance(drafted, 14, 14);
  world.close(drafted);
  Open with_head = world.open(count_to(14), 16);
  CHECK_EQ(with_head.sequence->num_draft_tokens(), 13);
  world.advance(with_head, 14, 13, true);
  world.close(with_head);
  Open again = world.open(count_to(15), 16);
  CHECK_EQ(again.sequence->num_target_tokens(), 14);
  CHECK(again.sequence->num_draft_tokens() >= 12);
  CHECK(again.sequence->num_head_tokens() >= 12);
  world.check(std::span(&again, 1));
}

void test_branches_do_not_write_into_each_other() {
  World world(32);
  Open trunk = run(world, count_to(10), 12);
  world.close(trunk);
  std::vector<Open> opened;
  for (int32_t branch = 0; branch < 3; ++branch) {
    Tokens tokens = count_to(10);
    for (int32_t i = 0; i < 6; ++i) tokens.push_back(100 + branch);
    opened.push_back(world.open(tokens, 16));
    CHECK_EQ(opened.back().sequence->num_target_tokens(), 10);
  }
  for (Open& open : opened) world.advance(open, 16, 16);
  for (const Open& open : opened) world.check_pages(open);
  world.check(opened);
  CHECK_EQ(opened[0].sequence->block_table()[1], opened[2].sequence->block_table()[1]);
  CHECK(opened[0].sequence->block_table()[2] != opened[2].sequence->block_table()[2]);
}

// Whoever writes something else into whole blocks, such as a draft model that
// begins anew within them, has its own.
void test_blocks_of_ones_own_are_copies() {
  World world(32);
  Open trunk = run(world, count_to(18), 20);
  world.close(trunk);
  std::vector<Open> opened;
  opened.push_back(world.open(count_to(20), 24));
  opened.push_back(world.open(count_to(20), 24, 2));
  const auto shared = opened[0].sequence->block_table(), own = opened[1].sequence->block_table();
  CHECK_EQ(own[1], shared[1]);
  for (const int32_t index : {2, 3, 4}) CHECK(own[index] != shared[index]);
  for (int32_t i = 8; i < 18; ++i) world.slot(world.draft, opened[1], i) = 0;
  world.check_pages(opened[0]);
  world.check(opened);
  CHECK_EQ(world.open(count_to(19), 24).sequence->num_draft_tokens(), 18);
}

void test_eviction_takes_the_oldest_first() {
  World world(8);
  for (const int32_t first : {100, 200}) {
    Open open = run(world, Tokens(12, first), 12);
    world.close(open);
  }
  CHECK_EQ(world.pool.num_available(), 2);
  Open again = world.open(Tokens(5, 100),
                          5);  // touches the first one and shares its block
  CHECK_EQ(again.sequence->num_target_tokens(), 4);
  Open other = run(world, Tokens(16, 300), 16);
  CHECK_EQ(other.sequence->num_target_tokens(), 16);
  CHECK_EQ(world.tree.find(Tokens(12, 200)).num_target_tokens, 8);
  CHECK_EQ(world.tree.find(Tokens(12, 100)).num_target_tokens, 4);
}

// One sequence that may need every block: the nodes it begins with are evicted
// meanwhile, and its last block adopted.
void test_a_prefix_survives_its_own_eviction() {
  World world(4);
  Open first = run(world, count_to(10), 16);
  world.close(first);
  Open second = world.open(count_to(13), 16);
  CHECK_EQ(second.sequence->num_target_tokens(), 10);
  world.check(std::span(&second, 1));
  world.advance(second, 13, 13);
  world.check_pages(second);
}

void test_shared_blocks_count_once() {
  World world(16);
  Tokens prompt = count_to(16);
  for (int32_t branch = 0; branch < 4; ++branch) {
    prompt.resize(16);
    for (int32_t i = 0; i < 4; ++i) prompt.push_back(100 + branch);
    Open open = run(world, prompt, 20);
    world.close(open);
  }
  CHECK_EQ(world.pool.num_available(), 16 - 4 - 4);
  CHECK_EQ(world.tree.num_unshared(), 8);
  Open open = world.open(prompt, 20);
  CHECK_EQ(world.tree.num_unshared(), 4);
}

void test_a_refused_sequence_leaves_no_owner_behind() {
  World world(6);
  Open first = run(world, count_to(10), 12);
  world.close(first);
  Open holder = world.open(Tokens(4, 50), 12);
  CHECK_ERROR(PF_ENGINE_BUSY, "cache blocks", world.open(count_to(12), 24));
  world.check(std::span(&holder, 1));
}

// What a tree without limits would know: every ended sequence. A match is as
// long as the best of them allows.
int32_t longest_common(const std::vector<Tokens>& ended, std::span<const int32_t> tokens) {
  int64_t longest = 0;
  for (const Tokens& each : ended) {
    longest = std::max(longest, std::ranges::mismatch(each, tokens).in1 - each.begin());
  }
  return static_cast<int32_t>(longest);
}

Tokens random_prompt(std::mt19937& random) {
  Tokens prompt(1 + random() % 20);
  for (int32_t& token : prompt) token = random() % 6 == 0;
  return prompt;
}

// Conversations over two letters, so that they often begin alike: opened,
// continued, cut short and closed in any order, with and without a draft model
// and a head, with blocks of their own in which the draft model writes
// something else.
void test_random_conversations(int32_t num_blocks, int32_t lookahead, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int32_t limit) { return static_cast<int32_t>(random() % limit); };
  World world(num_blocks, lookahead);
  const bool evicts = num_blocks < 1000;
  std::vector<Open> opened;
  std::vector<Tokens> ended;
  int64_t num_reused = 0;
  for (int step = 0; step < (evicts ? 20000 : 3000); ++step) {
    if (opened.size() < 3 && below(2) == 0) {
      const Tokens prompt = random_prompt(random);
      const int32_t num_own = below(4) == 0 ? below(4) : 0;
      opened.push_back(world.open(prompt, static_cast<int32_t>(prompt.size()) + 12, num_own));
      Sequence& sequence = *opened.back().sequence;
      num_reused += sequence.num_target_tokens();
      if (!evicts)
        CHECK_EQ(sequence.num_target_tokens(), longest_common(ended, std::span(prompt).first(prompt.size() - 1)));
      if (num_own > 0) {  // the draft model begins anew in what is its own
        const int32_t own = opened.back().first_own;
        for (int32_t i = own; i < sequence.num_target_tokens(); ++i) world.slot(world.draft, opened.back(), i) = 0;
        Reservation(sequence, sequence.num_target_tokens())
            .commit(sequence.num_target_tokens(), std::min(sequence.num_draft_tokens(), own));
      }
    } else if (!opened.empty()) {
      const int32_t index = below(static_cast<int32_t>(opened.size()));
      Open& open = opened[index];
      const auto num_tokens = static_cast<int32_t>(open.tokens.size());
      if (below(4) == 0 || num_tokens == open.sequence->max_tokens()) {
        world.check_pages(open);
        world.close(open);
        if (!evicts) ended.push_back(open.tokens);
        opened.erase(opened.begin() + index);
      } else {
        open.tokens.push_back(below(2));
        const int32_t num_draft = std::max(open.sequence->num_draft_tokens(), below(2) * below(num_tokens + 1));
        world.advance(open, num_tokens, std::min(num_draft, num_tokens), lookahead > 0 && below(2) == 0);
      }
    }
    world.check(opened);
  }
  CHECK(num_reused > 3000);
}

}  // namespace

int main() {
  test_the_next_turn_starts_where_the_last_one_ended();
  test_the_last_token_of_a_prompt_always_runs();
  test_a_heads_slots_are_shared_only_with_their_next_token();
  test_the_draft_is_restored_as_far_as_it_got();
  test_each_model_catches_up_for_all_that_share_a_node();
  test_branches_do_not_write_into_each_other();
  test_blocks_of_ones_own_are_copies();
  test_eviction_takes_the_oldest_first();
  test_a_prefix_survives_its_own_eviction();
  test_shared_blocks_count_once();
  test_a_refused_sequence_leaves_no_owner_behind();
  for (const int32_t lookahead : {0, 1}) {
    test_random_conversations(24, lookahead, 3);
    test_random_conversations(40, lookahead, 4);
    test_random_conversations(8000, lookahead, 5);
  }
  return check::result();
}
