#include "memory/kv_blocks.h"

#include <memory>
#include <random>
#include <span>
#include <vector>

#include "check.h"

namespace {

using pilotfish::BlockPool;
using pilotfish::Reservation;
using pilotfish::Sequence;

void check_pool(const BlockPool& pool, const std::vector<std::unique_ptr<Sequence>>& sequences) {
  std::vector<std::span<const int32_t>> tables;
  for (const auto& sequence : sequences) tables.push_back(sequence->block_table());
  pool.check(tables);
}

// Rounds of random widths and random accept lengths on up to four sequences, as
// speculation makes them: the draft runs behind the target or is not used at
// all, rounds fail half-way, sequences end and others take their place.
void test_random_rounds() {
  constexpr int32_t kBlockSize = 4;
  std::mt19937 random(1);
  const auto below = [&](int32_t limit) { return static_cast<int32_t>(random() % limit); };
  BlockPool pool(40);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int step = 0; step < 20000; ++step) {
    if (sequences.size() < 4 && below(3) == 0) {
      const int32_t max_tokens = 1 + below(60);
      const int32_t available = pool.num_available();
      if (pilotfish::num_blocks_for(max_tokens, kBlockSize) <= available) {
        sequences.push_back(std::make_unique<Sequence>(pool, kBlockSize, max_tokens));
      } else {
        CHECK_ERROR(PF_ENGINE_BUSY, "cache blocks", Sequence(pool, kBlockSize, max_tokens));
        CHECK_EQ(pool.num_available(), available);
      }
    }
    if (sequences.empty()) continue;
    const int32_t index = below(static_cast<int32_t>(sequences.size()));
    Sequence& sequence = *sequences[index];
    const int32_t before = sequence.num_target_tokens();
    const int32_t draft_before = sequence.num_draft_tokens();
    const int32_t room = sequence.max_tokens() - before;
    if (room == 0 || below(30) == 0) {
      sequences.erase(sequences.begin() + index);
      check_pool(pool, sequences);
      continue;
    }
    const int32_t num_rows = 1 + below(std::min(room, 9));
    {
      Reservation reservation(sequence, before + num_rows);
      CHECK_EQ(static_cast<int32_t>(sequence.block_table().size()),
               pilotfish::num_blocks_for(before + num_rows, kBlockSize));
      check_pool(pool, sequences);
      const int32_t accepted = 1 + below(num_rows);
      if (below(10) > 0) {
        reservation.commit(before + accepted, below(2) == 0 ? draft_before : before + accepted - below(2));
        CHECK_EQ(sequence.num_target_tokens(), before + accepted);
      }
    }
    CHECK_EQ(static_cast<int32_t>(sequence.block_table().size()),
             pilotfish::num_blocks_for(sequence.num_target_tokens(), kBlockSize));
    check_pool(pool, sequences);
  }
  sequences.clear();
  check_pool(pool, sequences);
  CHECK_EQ(pool.num_available(), 40);
}

void test_rollback_restores_both_models() {
  BlockPool pool(8);
  Sequence sequence(pool, 4, 32);
  Reservation(sequence, 10).commit(9, 7);
  const std::vector<int32_t> table(sequence.block_table().begin(), sequence.block_table().end());
  {
    const Reservation abandoned(sequence, 30);
  }
  CHECK_EQ(sequence.num_target_tokens(), 9);
  CHECK_EQ(sequence.num_draft_tokens(), 7);
  CHECK(std::equal(table.begin(), table.end(), sequence.block_table().begin(), sequence.block_table().end()));
}

void test_a_moved_reservation_acts_once() {
  BlockPool pool(8);
  Sequence sequence(pool, 4, 32);
  {
    Reservation first(sequence, 20);
    Reservation second(std::move(first));
    second.commit(18, 17);
  }
  CHECK_EQ(sequence.num_target_tokens(), 18);
  CHECK_EQ(sequence.block_table().size(), size_t{5});
}

void test_shared_blocks_are_freed_by_their_last_owner() {
  BlockPool pool(3);
  CHECK(pool.book(2));
  const int32_t block_id = pool.take();
  pool.share(block_id);
  const std::vector<int32_t> table{block_id};
  const std::vector<std::span<const int32_t>> two_owners{table, table};
  pool.check(two_owners);
  pool.release(block_id);
  pool.check(std::span(two_owners).first(1));
  CHECK_ERROR(PF_INTERNAL, "owners", pool.check({}));
  CHECK_EQ(pool.num_available(), 1);
  pool.release(block_id);
  pool.check({});
  pool.unbook(1);
  CHECK_EQ(pool.num_available(), 3);
}

void test_booking_is_all_or_nothing() {
  BlockPool pool(4);
  CHECK(pool.book(3));
  CHECK(!pool.book(2));
  CHECK_EQ(pool.num_available(), 1);
  pool.unbook(3);
}

void test_violations_are_found() {
  BlockPool pool(4);
  CHECK(pool.book(2));
  const std::vector<int32_t> table{pool.take(), pool.take()};
  const std::vector<std::span<const int32_t>> right{table};
  const std::vector<std::span<const int32_t>> owned_twice{table, table};
  const std::vector<int32_t> outside{9};
  const std::vector<std::span<const int32_t>> wrong{outside};
  pool.check(right);
  CHECK_ERROR(PF_INTERNAL, "2 owners", pool.check(owned_twice));
  CHECK_ERROR(PF_INTERNAL, "block 9 of 4", pool.check(wrong));
  pool.release(table[0]);
  pool.release(table[1]);
}

void test_what_can_never_fit_is_told_from_what_others_hold() {
  BlockPool pool(4);
  CHECK_ERROR(PF_CONTEXT_FULL, "17 tokens need 5 cache blocks of 4, the engine has 4", Sequence(pool, 4, 17));
  const Sequence holder(pool, 4, 9);
  CHECK_ERROR(PF_ENGINE_BUSY, "other requests leave 1 of 4 free", Sequence(pool, 4, 8));
  CHECK_ERROR(PF_CONTEXT_FULL, "the engine has 4", Sequence(pool, 4, 17));
}

}  // namespace

int main() {
  test_random_rounds();
  test_what_can_never_fit_is_told_from_what_others_hold();
  test_rollback_restores_both_models();
  test_a_moved_reservation_acts_once();
  test_shared_blocks_are_freed_by_their_last_owner();
  test_booking_is_all_or_nothing();
  test_violations_are_found();
  return check::result();
}
