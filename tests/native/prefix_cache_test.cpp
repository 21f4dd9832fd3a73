#include "memory/prefix_cache.h"

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
using pilotfish::PrefixCache;
using pilotfish::Reservation;
using pilotfish::Sequence;

constexpr int32_t kBlockSize = 4;
using Tokens = std::vector<int32_t>;

// What both models' pages would hold: the token of every slot of every block.
using Pages = std::vector<int32_t>;

struct Open {
  Tokens tokens;  // the prompt, then what was decoded
  std::unique_ptr<Sequence> sequence;
};

struct World {
  explicit World(int32_t num_blocks, int32_t lookahead = 0)
      : pool(num_blocks), cache(pool, kBlockSize, lookahead), pages(num_blocks * kBlockSize, -1) {}

  // Opens a sequence and checks that its blocks hold what it was told they
  // hold.
  Open open(const Tokens& prompt, int32_t max_tokens) {
    auto adopted = cache.adopt(std::span(prompt).first(prompt.size() - 1), num_blocks_for(max_tokens, kBlockSize));
    if (adopted.copy) {
      std::copy_n(pages.begin() + adopted.copy->from * kBlockSize, kBlockSize,
                  pages.begin() + adopted.copy->to * kBlockSize);
    }
    CHECK(adopted.prefix.num_draft_tokens <= adopted.prefix.num_target_tokens);
    Open open{prompt, std::make_unique<Sequence>(pool, kBlockSize, max_tokens, std::move(adopted.prefix))};
    check_pages(open);
    return open;
  }

  // Runs tokens up to num_target and num_draft through both models.
  void advance(Open& open, int32_t num_target, int32_t num_draft) {
    const int32_t from = open.sequence->num_target_tokens();
    Reservation room(*open.sequence, num_target);
    for (int32_t i = from; i < num_target; ++i) {
      pages[open.sequence->block_table()[i / kBlockSize] * kBlockSize + i % kBlockSize] = open.tokens[i];
    }
    room.commit(num_target, num_draft);
  }

  void close(Open& open) {
    open.tokens.resize(open.sequence->num_target_tokens());
    CachedPrefix ended = open.sequence->hand_over();
    if (!open.tokens.empty()) cache.retain(std::move(open.tokens), std::move(ended));
    open.sequence.reset();
  }

  void check_pages(const Open& open) const {
    for (int32_t i = 0; i < open.sequence->num_target_tokens(); ++i) {
      CHECK_EQ(pages[open.sequence->block_table()[i / kBlockSize] * kBlockSize + i % kBlockSize], open.tokens[i]);
    }
  }

  void check(std::span<const Open> opened) const {
    std::vector<std::span<const int32_t>> tables;
    for (const Open& open : opened) tables.push_back(open.sequence->block_table());
    cache.append_tables(tables);
    pool.check(tables);
  }

  BlockPool pool;
  PrefixCache cache;
  Pages pages;
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
  world.advance(first, 13, 0);
  first.sequence->set_num_head_tokens(12);
  const Tokens table(first.sequence->block_table().begin(), first.sequence->block_table().end());
  world.close(first);
  Open same = world.open(count_to(20), 20);
  CHECK_EQ(same.sequence->num_target_tokens(), 13);
  CHECK_EQ(same.sequence->num_head_tokens(), 12);
  Tokens prompt = count_to(20);
  for (size_t i = 8; i < prompt.size(); ++i) prompt[i] += 100;
  Open other = world.open(prompt, 20);
  CHECK_EQ(other.sequence->num_target_tokens(), 7);
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
  Open other = run(world, Tokens(8, 300), 8);
  CHECK_EQ(other.sequence->num_target_tokens(), 8);
  CHECK_EQ(world.open(Tokens(5, 200), 5).sequence->num_target_tokens(), 0);
  CHECK_EQ(world.open(Tokens(5, 100), 5).sequence->num_target_tokens(), 4);
}

// One sequence that may need every block: the entry it begins with is evicted
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

void test_a_refused_sequence_leaves_no_owner_behind() {
  World world(6);
  Open first = run(world, count_to(10), 12);
  world.close(first);
  Open holder = world.open(Tokens(4, 50), 12);
  CHECK_ERROR(PF_ENGINE_BUSY, "cache blocks", world.open(count_to(12), 24));
  world.check(std::span(&holder, 1));
}

// Conversations over two letters, so that they often begin alike: opened,
// continued and closed in any order.
void test_random_conversations() {
  std::mt19937 random(3);
  const auto below = [&](int32_t limit) { return static_cast<int32_t>(random() % limit); };
  World world(24);
  std::vector<Open> opened;
  int64_t num_reused = 0;
  for (int step = 0; step < 20000; ++step) {
    if (opened.size() < 3 && below(2) == 0) {
      Tokens prompt(1 + below(20));
      for (int32_t& token : prompt) token = below(8) == 0;
      opened.push_back(world.open(prompt, static_cast<int32_t>(prompt.size()) + 12));
      num_reused += opened.back().sequence->num_target_tokens();
    } else if (!opened.empty()) {
      const int32_t index = below(static_cast<int32_t>(opened.size()));
      Open& open = opened[index];
      const auto num_tokens = static_cast<int32_t>(open.tokens.size());
      if (below(4) == 0 || num_tokens == open.sequence->max_tokens()) {
        world.check_pages(open);
        world.close(open);
        opened.erase(opened.begin() + index);
      } else {
        open.tokens.push_back(below(2));
        const int32_t num_draft = std::max(open.sequence->num_draft_tokens(), below(num_tokens + 1));
        world.advance(open, num_tokens, std::min(num_draft, num_tokens));
      }
    }
    world.check(opened);
  }
  CHECK(num_reused > 10000);
}

}  // namespace

int main() {
  test_the_next_turn_starts_where_the_last_one_ended();
  test_the_last_token_of_a_prompt_always_runs();
  test_a_heads_slots_are_shared_only_with_their_next_token();
  test_the_draft_is_restored_as_far_as_it_got();
  test_branches_do_not_write_into_each_other();
  test_eviction_takes_the_oldest_first();
  test_a_prefix_survives_its_own_eviction();
  test_a_refused_sequence_leaves_no_owner_behind();
  test_random_conversations();
  return check::result();
}
