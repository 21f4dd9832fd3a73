// Which weights are streamed where an engine has no room for all, to a GPU or
// from the file, and the plan of its memory then.
#include "memory/weight_streaming.h"

#include <algorithm>

#include "check.h"
#include "engine/memory_plan.h"
#include "engine/options.h"
#include "memory/cuda_memory_plan.h"
#include "tiny_manifest.h"

namespace {

using namespace pilotfish;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kLayers = 32;

// A 7B target: four packed linears a layer, int4, and ends of int8.
Manifest seven_billion() {
  Manifest manifest =
      parse_manifest(tiny::replaced(tiny::kManifest, R"("cache_dtype": "f32")", R"("cache_dtype": "f16")"), "/bundle");
  ModelEntry& model = manifest.target;
  model.hidden_size = 4096;
  model.intermediate_size = 11008;
  model.num_heads = model.num_kv_heads = 32;
  model.head_dim = 128;
  model.num_layers = kLayers;
  model.vocab_size = model.num_logits = 32000;
  model.max_positions = 4096;
  model.caches.assign(kLayers, {32, 128});
  model.tensors.clear();
  uint64_t offset = 0;
  const auto add = [&](const std::string& name, uint64_t rows, uint64_t columns, uint64_t group_bytes) {
    const uint64_t num_bytes = rows / 16 * (columns / 64) * group_bytes;
    model.tensors.push_back({name, TensorEntry::Type::kU8, {int64_t(num_bytes)}, offset, num_bytes});
    offset += num_bytes;
  };
  add("embedding", 32000, 4096, 1088);
  for (int i = 0; i < kLayers; ++i) {
    const std::string at = "layers." + std::to_string(i) + ".";
    add(at + "qkv", 12288, 4096, 576);
    add(at + "o", 4096, 4096, 576);
    add(at + "gate_up", 22016, 4096, 576);
    add(at + "down", 4096, 11008, 576);
    model.tensors.push_back({at + "norm", TensorEntry::Type::kF32, {4096}, offset, 16384});
    offset += 16384;
  }
  add("lm_head", 32000, 4096, 1088);
  model.weights.num_bytes = offset;
  return manifest;
}

pf_engine_options options_with(uint64_t budget, int32_t max_context = 0) {
  pf_engine_options options = default_engine_options();
  options.device = PF_DEVICE_CUDA;
  options.num_threads = 2;
  options.max_draft_tokens = 8;
  options.max_context = max_context;
  options.memory_budget_bytes = budget;
  return options;
}

uint64_t sum_of_parts(const pf_engine_info& plan) {
  return plan.target_weight_bytes + plan.draft_weight_bytes + plan.target_cache_bytes + plan.draft_cache_bytes +
         plan.lookup_bytes + plan.activation_bytes + plan.runtime_bytes;
}

void test_only_linears_of_layers_are_streamed() {
  const Manifest manifest = seven_billion();
  const StreamedChoice all = stream_all(manifest.target, StreamedFrom::kHost);
  CHECK_EQ(all.tensors.size(), size_t{4 * kLayers});
  for (const TensorEntry* tensor : all.tensors) CHECK(tensor->name.starts_with("layers."));
  const uint64_t largest = uint64_t{22016} / 16 * (4096 / 64) * 576;
  CHECK(all.slot_bytes >= largest && all.slot_bytes < largest + kMiB);
  // What remains on the device: the ends, the norms, and the two slots.
  const uint64_t ends = 2 * uint64_t{32000} / 16 * (4096 / 64) * 1088;
  CHECK(all.resident_bytes >= ends + 2 * largest);
  CHECK(all.resident_bytes < ends + 2 * largest + 12 * kMiB);
}

void test_a_choice_is_the_least_that_fits_and_found_again() {
  const Manifest manifest = seven_billion();
  const uint64_t whole = cuda_weight_bytes(manifest.target),
                 least = stream_all(manifest.target, StreamedFrom::kHost).resident_bytes;
  for (const uint64_t most : {whole - 1, whole * 3 / 4, whole / 2, least}) {
    const StreamedChoice choice = choose_streamed(manifest.target, most, StreamedFrom::kHost);
    CHECK(choice.resident_bytes <= most);
    CHECK(choice.streamed_bytes + choice.resident_bytes >= whole);
    if (most > least) CHECK(choice.resident_bytes + 2 * choice.slot_bytes > most);
    const StreamedChoice again = choose_streamed(manifest.target, choice.resident_bytes, StreamedFrom::kHost);
    CHECK(again.tensors == choice.tensors);
  }
  // Half of them are every other one.
  const StreamedChoice half = choose_streamed(manifest.target, whole / 2, StreamedFrom::kHost);
  const auto in_first_half = std::ranges::count_if(half.tensors, [&](const TensorEntry* tensor) {
    return tensor->offset < manifest.target.tensors[1 + 5 * kLayers / 2].offset;
  });
  CHECK(std::abs(int(in_first_half) - int(half.tensors.size() - in_first_half)) <= 1);
}

void test_a_budget_that_holds_all_streams_nothing() {
  const Manifest manifest = seven_billion();
  const pf_engine_info whole = plan_memory(manifest, options_with(0, 1024));
  CHECK_EQ(whole.target_streamed_bytes, uint64_t{0});
  const pf_engine_info exact = plan_memory(manifest, options_with(whole.total_bytes, 1024));
  CHECK_EQ(exact.target_streamed_bytes, uint64_t{0});
  CHECK_EQ(exact.total_bytes, whole.total_bytes);
  // A shorter context comes first, where none was asked for.
  const pf_engine_info shorter = plan_memory(manifest, options_with(whole.total_bytes));
  CHECK_EQ(shorter.target_streamed_bytes, uint64_t{0});
  CHECK(shorter.total_bytes <= whole.total_bytes);
}

void test_a_budget_of_half_the_weights() {
  const Manifest manifest = seven_billion();
  const pf_engine_info whole = plan_memory(manifest, options_with(0, 1024));
  const uint64_t budget = whole.total_bytes - whole.target_weight_bytes / 2;
  const pf_engine_info plan = plan_memory(manifest, options_with(budget, 1024));
  CHECK(plan.total_bytes <= budget);
  CHECK(plan.total_bytes + 64 * kMiB > budget);  // no more is streamed than needed
  CHECK_EQ(plan.total_bytes, sum_of_parts(plan));
  CHECK(plan.target_streamed_bytes + plan.target_weight_bytes >= whole.target_weight_bytes);
  CHECK_EQ(plan.max_context, 1024);
  CHECK_EQ(plan.target_cache_bytes, whole.target_cache_bytes);
  CHECK(plan.activation_bytes > whole.activation_bytes);  // copies in recorded passes
  CHECK(describe(plan).find("streamed weights") != std::string::npos);
  CHECK(describe(whole).find("streamed weights") == std::string::npos);
  CHECK_EQ(choose_streamed(manifest.target, plan.target_weight_bytes, StreamedFrom::kHost).streamed_bytes,
           plan.target_streamed_bytes);
}

void test_what_is_free_on_a_card_streams_too() {
  const Manifest manifest = seven_billion();
  const CudaDeviceInfo card{"Card", 13000, 90, 132, uint64_t{1} << 33, uint64_t{2500} << 20};
  const pf_engine_info plan = plan_memory(manifest, options_with(0, 256), &card);
  CHECK(plan.target_streamed_bytes > 0);
  CHECK(plan.total_bytes <= card.free_bytes + kCudaContextBytes);
}

void test_what_does_not_fit_even_so_is_refused() {
  const Manifest manifest = seven_billion();
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "memory_budget_bytes is 536870912", plan_memory(manifest, options_with(512 * kMiB)));
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "streamed weights", plan_memory(manifest, options_with(512 * kMiB)));
  const CudaDeviceInfo full{"Card", 13000, 90, 132, uint64_t{1} << 33, 200 * kMiB};
  CHECK_ERROR(PF_OUT_OF_MEMORY, "streamed weights", plan_memory(manifest, options_with(0), &full));
}

// Page-locked memory is the host's.
void test_what_the_host_has_no_room_for_is_refused() {
  const Manifest manifest = seven_billion();
  const CudaDeviceInfo card{"Card", 13000, 90, 132, uint64_t{1} << 33, uint64_t{2500} << 20};
  const uint64_t streamed = plan_memory(manifest, options_with(0, 256), &card).target_streamed_bytes;
  CHECK_EQ(plan_memory(manifest, options_with(0, 256), &card, streamed).target_streamed_bytes, streamed);
  CHECK_ERROR(PF_OUT_OF_MEMORY, std::to_string(streamed / kMiB) + " MiB of weights are to stay in page-locked host",
              plan_memory(manifest, options_with(0, 256), &card, streamed - 1));
}

pf_engine_options cpu_options(uint64_t budget, int32_t max_context) {
  pf_engine_options options = options_with(budget, max_context);
  options.device = PF_DEVICE_CPU;
  options.prefill_chunk = 256;  // or it would shrink first
  return options;
}

// On the CPU any packed weight may stay in the file.
void test_the_cpu_maps_what_a_budget_has_no_room_for() {
  const Manifest manifest = seven_billion();
  const pf_engine_info whole = plan_memory(manifest, cpu_options(0, 1024));
  CHECK_EQ(whole.target_streamed_bytes, uint64_t{0});
  for (const uint64_t missing : {uint64_t{1}, whole.target_weight_bytes / 2, whole.target_weight_bytes * 9 / 10}) {
    const uint64_t budget = whole.total_bytes - missing;
    const pf_engine_info plan = plan_memory(manifest, cpu_options(budget, 1024));
    CHECK(plan.total_bytes <= budget && plan.total_bytes + 150 * kMiB > budget);
    CHECK_EQ(plan.total_bytes, sum_of_parts(plan));
    CHECK(plan.target_streamed_bytes + plan.target_weight_bytes >= manifest.target.weights.num_bytes);
    CHECK_EQ(plan.activation_bytes, whole.activation_bytes);
    CHECK(describe(plan).find("streamed weights") != std::string::npos);
    const StreamedChoice choice = choose_streamed(manifest.target, plan.target_weight_bytes, StreamedFrom::kFile);
    CHECK_EQ(choice.streamed_bytes, plan.target_streamed_bytes);
    CHECK_EQ(choice.resident_bytes, plan.target_weight_bytes);
  }
  const StreamedChoice all = stream_all(manifest.target, StreamedFrom::kFile);
  CHECK_EQ(all.tensors.size(), size_t{4 * kLayers + 2});
  CHECK(all.resident_bytes <= 2 * kMiB);  // the norms
  // What does not fit even so.
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "streamed weights", plan_memory(manifest, cpu_options(128 * kMiB, 1024)));
}

// Without a budget what the process may have counts; a budget is taken as it is.
void test_the_cpu_maps_what_the_machine_has_no_room_for() {
  const Manifest manifest = seven_billion();
  const pf_engine_info whole = plan_memory(manifest, cpu_options(0, 1024));
  CHECK_EQ(plan_memory(manifest, cpu_options(0, 1024), nullptr, whole.total_bytes).target_streamed_bytes, uint64_t{0});
  const uint64_t machine = whole.total_bytes / 2;
  const pf_engine_info plan = plan_memory(manifest, cpu_options(0, 1024), nullptr, machine);
  CHECK(plan.total_bytes <= machine && plan.target_streamed_bytes > 0);
  const pf_engine_info more = plan_memory(manifest, cpu_options(whole.total_bytes, 1024), nullptr, machine);
  CHECK_EQ(more.target_streamed_bytes, uint64_t{0});
  const pf_engine_info less = plan_memory(manifest, cpu_options(machine / 2, 1024), nullptr, machine);
  CHECK(less.total_bytes <= machine / 2);
  CHECK_ERROR(PF_OUT_OF_MEMORY,
              "this process may have 128 MiB of memory, but 1 sequence(s) of 1024 "
              "tokens need",
              plan_memory(manifest, cpu_options(0, 1024), nullptr, 128 * kMiB));
  CHECK_ERROR(PF_BUDGET_TOO_SMALL, "memory_budget_bytes is 134217728",
              plan_memory(manifest, cpu_options(128 * kMiB, 1024), nullptr, machine));
}

// Tensors of a manifest may lie on one another.
void test_tensors_that_overlap_do_not_wrap_around() {
  Manifest manifest = seven_billion();
  for (TensorEntry& tensor : manifest.target.tensors) tensor.offset = 0;
  manifest.target.weights.num_bytes = manifest.target.tensors.front().num_bytes;
  CHECK_EQ(stream_all(manifest.target, StreamedFrom::kFile).resident_bytes, uint64_t{0});
}

}  // namespace

int main() {
  test_only_linears_of_layers_are_streamed();
  test_a_choice_is_the_least_that_fits_and_found_again();
  test_a_budget_that_holds_all_streams_nothing();
  test_a_budget_of_half_the_weights();
  test_what_is_free_on_a_card_streams_too();
  test_what_does_not_fit_even_so_is_refused();
  test_what_the_host_has_no_room_for_is_refused();
  test_the_cpu_maps_what_a_budget_has_no_room_for();
  test_the_cpu_maps_what_the_machine_has_no_room_for();
  test_tensors_that_overlap_do_not_wrap_around();
  return check::result();
}
