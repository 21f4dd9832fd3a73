#include "engine/memory_plan.h"

#include "check.h"
#include "engine/options.h"
#include "tiny_manifest.h"

namespace {

using pilotfish::Manifest;
using pilotfish::plan_memory;

constexpr uint64_t kHugePage = 2 << 20;

const Manifest kPair = pilotfish::parse_manifest(tiny::kManifest, "/bundle");

pf_engine_options options_with(int32_t max_context, uint64_t budget) {
  pf_engine_options options = pilotfish::default_engine_options();
  options.num_threads = 2;
  options.max_context = max_context;
  options.memory_budget_bytes = budget;
  options.prefill_chunk = 256;
  return options;
}

uint64_t sum_of_parts(const pf_engine_info& plan) {
  return plan.target_weight_bytes + plan.draft_weight_bytes + plan.target_cache_bytes + plan.draft_cache_bytes +
         plan.lookup_bytes + plan.activation_bytes + plan.runtime_bytes;
}

void test_every_part_is_counted() {
  const pf_engine_info plan = plan_memory(kPair, options_with(1000, 0));
  CHECK_EQ(plan.max_context, 1000);
  CHECK_EQ(plan.num_blocks, 32);
  // 12288 and 4096 bytes, in huge pages
  CHECK_EQ(plan.target_weight_bytes, kHugePage);
  CHECK_EQ(plan.draft_weight_bytes, kHugePage);
  // keys and values * tokens * layers * heads * head_dim * bytes, each by its
  // own model
  CHECK_EQ(plan.target_cache_bytes, uint64_t{2} * 1024 * 2 * 2 * 16 * 2);
  CHECK_EQ(plan.draft_cache_bytes, uint64_t{2} * 1024 * 1 * 1 * 16 * 4);
  CHECK(plan.activation_bytes > 9 * (104 + 128) * sizeof(float));  // logits of K + 1 rows of both
  CHECK_EQ(plan.total_bytes, sum_of_parts(plan));
}

// Layers that share a cache, and caches of different shapes.
void test_listed_caches_are_counted() {
  Manifest listed = kPair;
  listed.target.caches = {{2, 16}, {1, 32}, {2, 48}};
  CHECK_EQ(plan_memory(listed, options_with(1000, 0)).target_cache_bytes, uint64_t{2} * 1024 * (32 + 32 + 96) * 2);
  listed.target.caches = {{2, 16}};
  CHECK_EQ(plan_memory(listed, options_with(1000, 0)).target_cache_bytes, uint64_t{2} * 1024 * 32 * 2);
}

// The largest dimensions that a manifest may have, with the largest options,
// stay within 64 bits.
void test_nothing_overflows() {
  using pilotfish::CacheType;
  Manifest most = pilotfish::parse_manifest(
      tiny::with_head("eagle",
                      R"("num_predictions": 63, "graphs": {@features@, @step@}, "cache": {"num_heads": 512,
      "num_kv_heads": 512, "head_dim": 512, "max_positions": 1073741824, "cache_dtype": "f32"})"),
      "/bundle");
  most.head->state_size = most.head->num_logits = 1 << 24;
  pf_engine_options options = options_with(1 << 22, 0);
  options.num_sequences = 1024;
  options.max_draft_tokens = 63;
  options.prefill_chunk = 4096;
  for (const CacheType type : {CacheType::kF32, CacheType::kF16}) {
    for (pilotfish::ModelEntry* model : {&most.target, &*most.draft}) {
      model->num_layers = 1024;
      model->hidden_size = model->intermediate_size = model->vocab_size = model->num_logits = 1 << 24;
      model->num_heads = model->num_kv_heads = 512;
      model->head_dim = type == CacheType::kF32 ? 512 : 256;  // the most that each device has
      model->caches.assign(1024, {512, model->head_dim});
      model->max_positions = 1 << 30;
      model->cache_type = most.head->cache->type = type;
      most.head->cache->head_dim = model->head_dim;
    }
    options.device = type == CacheType::kF32 ? PF_DEVICE_CPU : PF_DEVICE_CUDA;  // which has no f32
    const pf_engine_info plan = plan_memory(most, options);
    const uint64_t cache = uint64_t{2} * 1024 * 512 * most.target.head_dim * element_bytes(type)
                           << 32;  // of 2^32 tokens
    CHECK_EQ(plan.target_cache_bytes, cache);
    CHECK_EQ(plan.draft_cache_bytes, cache);
    CHECK(plan.total_bytes > 2 * cache && plan.total_bytes - 2 * cache < cache);
  }
}

void test_a_head_is_counted() {
  const std::string parts = R"("num_predictions": 3, "cache": null, "graphs": {@heads@})";
  const Manifest with_head = pilotfish::parse_manifest(tiny::with_head("medusa", parts), "/bundle");
  const pf_engine_info without = plan_memory(kPair, options_with(64, 0));
  const pf_engine_info plan = plan_memory(with_head, options_with(64, 0));
  CHECK_EQ(without.has_head, 0);
  CHECK_EQ(plan.has_head, 1);
  CHECK_EQ(plan.head_weight_bytes, kHugePage);
  CHECK_EQ(plan.head_cache_bytes, uint64_t{0});
  // The stream that goes in, three rows of logits, and what the target gives
  // out for K + 1 rows.
  const uint64_t buffers = 4 * (64 + 3 * 104) + 9 * 4 * (64 + 1);
  CHECK_EQ(plan.activation_bytes, without.activation_bytes + buffers);
  CHECK_EQ(plan.total_bytes, without.total_bytes + kHugePage + buffers);
}

// What the program takes by its own count is in the plan of host memory, and in its budget.
void test_the_program_is_counted() {
  pf_engine_options options = options_with(64, 0);
  const pf_engine_info without = plan_memory(kPair, options);
  CHECK_EQ(without.program_bytes, uint64_t{0});
  options.program_bytes = uint64_t{100} << 20;
  const pf_engine_info plan = plan_memory(kPair, options);
  CHECK_EQ(plan.program_bytes, options.program_bytes);
  CHECK_EQ(plan.total_bytes, without.total_bytes + options.program_bytes);
  options.memory_budget_bytes = plan.total_bytes;
  CHECK_EQ(plan_memory(kPair, options).max_context, 64);
  options.memory_budget_bytes = plan.total_bytes - 1;
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "program", plan_memory(kPair, options));
  options.memory_budget_bytes = 0;
  options.device = PF_DEVICE_CUDA;
  Manifest on_device = kPair;
  on_device.draft->cache_type = pilotfish::CacheType::kF16;
  CHECK_EQ(plan_memory(on_device, options).program_bytes, uint64_t{0});
}

// The process's own memory is a limit where no budget is given; a budget is taken as it is.
void test_the_host_is_the_limit_without_a_budget() {
  pf_engine_options options = options_with(64, 0);
  const uint64_t needed = plan_memory(kPair, options).total_bytes;
  CHECK_EQ(plan_memory(kPair, options, nullptr, needed).max_context, 64);
  CHECK_ERROR(PF_OUT_OF_MEMORY, "this process may have", plan_memory(kPair, options, nullptr, kHugePage / 2));
  options.memory_budget_bytes = needed;
  CHECK_EQ(plan_memory(kPair, options, nullptr, kHugePage / 2).max_context, 64);
}

void test_sequences_multiply_the_cache() {
  pf_engine_options options = options_with(64, 0);
  const pf_engine_info one = plan_memory(kPair, options);
  options.num_sequences = 3;
  const pf_engine_info three = plan_memory(kPair, options);
  CHECK_EQ(three.num_blocks, 3 * one.num_blocks);
  CHECK_EQ(three.target_cache_bytes, 3 * one.target_cache_bytes);
  // They share passes: of each but the first one more row of both models' logits.
  const uint64_t logits = 4 * (kPair.target.num_logits + kPair.draft->num_logits);
  CHECK_EQ(three.activation_bytes, one.activation_bytes + 2 * logits);
  options.num_sequences = 17;
  const pf_engine_info many = plan_memory(kPair, options);
  CHECK_EQ(many.activation_bytes, one.activation_bytes + 15 * logits);
}

// A distribution of each token that a request drafts.
void test_rejection_keeps_distributions() {
  pf_engine_options options = options_with(64, 0);
  const pf_engine_info equal = plan_memory(kPair, options);
  options.acceptance = PF_ACCEPT_REJECTION;
  const uint64_t drawn = options.max_draft_tokens * 8 * uint64_t(kPair.target.vocab_size);
  CHECK_EQ(plan_memory(kPair, options).activation_bytes, equal.activation_bytes + drawn);
  options.num_sequences = 17;
  const uint64_t logits = 4 * (kPair.target.num_logits + kPair.draft->num_logits);
  CHECK_EQ(plan_memory(kPair, options).activation_bytes, equal.activation_bytes + 16 * drawn + 15 * logits);
}

void test_a_budget_shortens_the_context_no_more_than_needed() {
  const pf_engine_info whole = plan_memory(kPair, options_with(0, 0));
  CHECK_EQ(whole.max_context, 2048);
  const uint64_t block_bytes = (whole.target_cache_bytes + whole.draft_cache_bytes) / whole.num_blocks;
  CHECK_EQ(plan_memory(kPair, options_with(0, whole.total_bytes)).max_context, 2048);
  const pf_engine_info less = plan_memory(kPair, options_with(0, whole.total_bytes - 1));
  CHECK_EQ(less.max_context, 2048 - pilotfish::kBlockSize);
  const uint64_t index_bytes = whole.lookup_bytes - less.lookup_bytes;
  CHECK_EQ(less.total_bytes, whole.total_bytes - block_bytes - index_bytes);
  CHECK_EQ(less.total_bytes, sum_of_parts(less));
}

void test_a_budget_shortens_prompt_passes_before_the_context() {
  pf_engine_options options = options_with(0, 0);
  options.prefill_chunk = 0;
  const pf_engine_info whole = plan_memory(kPair, options);
  CHECK_EQ(whole.prefill_chunk, 256);
  CHECK_EQ(whole.total_bytes, plan_memory(kPair, options_with(0, 0)).total_bytes);
  options.memory_budget_bytes = whole.total_bytes - 1;
  const pf_engine_info less = plan_memory(kPair, options);
  CHECK_EQ(less.prefill_chunk, 128);
  CHECK_EQ(less.max_context, 2048);
  pf_engine_options narrow = options_with(0, 0);
  narrow.prefill_chunk = 64;
  const uint64_t least = plan_memory(kPair, narrow).total_bytes;
  options.memory_budget_bytes = least - 1;
  const pf_engine_info least_of_both = plan_memory(kPair, options);
  CHECK_EQ(least_of_both.prefill_chunk, 64);
  CHECK_EQ(least_of_both.max_context, 2048 - pilotfish::kBlockSize);
  options.max_context = 2048;
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "2048 tokens", plan_memory(kPair, options));
}

void test_what_does_not_fit_is_refused_with_the_table() {
  const pf_engine_info whole = plan_memory(kPair, options_with(0, 0));
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "target cache", plan_memory(kPair, options_with(0, 1 << 20)));
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "2048 tokens", plan_memory(kPair, options_with(2048, whole.total_bytes - 1)));
}

void test_the_models_limit() {
  CHECK_ERROR(PF_INVALID_ARGUMENT, "max_context is 2049, the model's limit is 2048",
              plan_memory(kPair, options_with(2049, 0)));
}

}  // namespace

int main() {
  test_every_part_is_counted();
  test_listed_caches_are_counted();
  test_a_head_is_counted();
  test_the_program_is_counted();
  test_the_host_is_the_limit_without_a_budget();
  test_nothing_overflows();
  test_sequences_multiply_the_cache();
  test_rejection_keeps_distributions();
  test_a_budget_shortens_the_context_no_more_than_needed();
  test_a_budget_shortens_prompt_passes_before_the_context();
  test_what_does_not_fit_is_refused_with_the_table();
  test_the_models_limit();
  return check::result();
}
