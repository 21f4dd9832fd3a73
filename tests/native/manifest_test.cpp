#include "bundle/manifest.h"

#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "tiny_manifest.h"

namespace {

using pilotfish::Manifest;
using pilotfish::parse_manifest;
using tiny::replaced;

void test_values() {
  const Manifest manifest = parse_manifest(tiny::kManifest, "/bundle");
  CHECK_EQ(manifest.tokenizer.file, "tokenizer.json");
  CHECK_EQ(manifest.tokenizer_size, 100);
  CHECK_EQ(manifest.eos_ids.size(), size_t{2});
  CHECK_EQ(manifest.eos_ids[1], 7);
  CHECK_EQ(manifest.target.num_layers, 2);
  CHECK_EQ(manifest.target.weights.num_bytes, uint64_t{12288});
  CHECK_EQ(manifest.target.tensors.size(), size_t{2});
  CHECK(manifest.target.tensors[1].type == pilotfish::TensorEntry::Type::kF32);
  CHECK_EQ(manifest.target.tensors[1].offset, uint64_t{8192});
  CHECK(manifest.target.cache_type == pilotfish::CacheType::kF16);
  CHECK(manifest.draft.has_value());
  CHECK(manifest.draft->cache_type == pilotfish::CacheType::kF32);
  CHECK_EQ(manifest.draft->vocab_size, 128);
  CHECK_EQ(manifest.draft->num_logits, 64);
  CHECK_EQ(manifest.target.pass_weight_bytes(), 5000u);  // packed ones only
}

void test_caches() {
  const auto with = [](const std::string& caches) {
    const std::string field = "\"num_layers\": 2";
    const std::string text = replaced(tiny::kManifest, field, field + ", \"caches\": " + caches);
    return parse_manifest(text, "/bundle").target.caches;
  };
  using pilotfish::CacheShape;
  CHECK((parse_manifest(tiny::kManifest, "/bundle").target.caches == std::vector<CacheShape>(2, {2, 16})));
  CHECK((with("[{\"num_kv_heads\": 1, \"head_dim\": 8}]") == std::vector<CacheShape>{{1, 8}}));
  const auto expect = [&](const std::string& caches, const std::string& message) {
    CHECK_ERROR(PF_BUNDLE_CORRUPT, message, with(caches));
  };
  expect("[]", "models.target.caches: expected 1 to num_layers caches, found 0");
  expect("2", "models.target.caches: expected an array, found 2");
  expect("[{}]", "models.target.caches[0].num_kv_heads: expected a value, found none");
  expect("[{\"num_kv_heads\": 3, \"head_dim\": 8}]", "num_kv_heads: expected an integer from 1 to 2, found 3");
  expect("[{\"num_kv_heads\": 1, \"head_dim\": 17}]", "head_dim: expected an integer from 1 to 16, found 17");
}

void test_the_draft_is_optional() {
  const std::string text = replaced(tiny::kManifest, "\"draft\"", "\"another\"");
  CHECK(!parse_manifest(text, "/bundle").draft.has_value());
}

void expect_corrupt(const std::string& from, const std::string& to, const std::string& message) {
  CHECK_ERROR(PF_BUNDLE_CORRUPT, message, parse_manifest(replaced(tiny::kManifest, from, to), "/bundle"));
}

void test_messages_name_file_field_expected_and_found() {
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "/bundle/manifest.json: not JSON", parse_manifest("{", "/bundle"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "expected an object, found []", parse_manifest("[]", "/bundle"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "manifest.format: expected a value, found none", parse_manifest("{}", "/bundle"));
  expect_corrupt("pilotfish-bundle", "zip", "manifest.format: expected \"pilotfish-bundle\", found \"zip\"");
  expect_corrupt("\"num_layers\": 2", "\"num_layers\": 0",
                 "models.target.num_layers: expected an integer from 1 to "
                 "1024, found 0");
  expect_corrupt("\"num_layers\": 2", "\"num_layers\": 2.5", "found 2.5");
  expect_corrupt("\"num_layers\": 2", "\"num_layers\": 18446744073709551615", "found 18446744073709551615");
  expect_corrupt("\"num_layers\": 2", "\"num_layers\": \"2\"", "found \"2\"");
  expect_corrupt("\"num_layers\": 2,", "", "models.target.num_layers: expected a value, found none");
  expect_corrupt("target.onnx", "../target.onnx", "graph.file: expected the name of a file in the bundle");
  expect_corrupt("target.onnx", "/etc/passwd", "graph.file: expected the name of a file in the bundle");
  expect_corrupt("e3b0", "E3b0", "sha256: expected 64 lower-case hexadecimal digits");
  expect_corrupt("\"offset\": 8192", "\"offset\": 8000", "tensors[1].offset: expected a multiple of 4096, found 8000");
  expect_corrupt("\"offset\": 8192", "\"offset\": 12288", "tensors[1].bytes: expected an end within the file's 12288");
  expect_corrupt("[8, 16]", "[8, 17]", "tensors[1].bytes: expected 544, found 512");
  expect_corrupt("[8, 16]", "[8, 17592186044416, 1048576]", "tensors[1].shape");
  expect_corrupt("\"f32\", \"shape\"", "\"f64\", \"shape\"", "tensors[1].dtype: expected u8 or f32, found \"f64\"");
}

// Those that were removed among them.
void test_a_cache_type_of_another_version_has_a_remedy() {
  for (const std::string type : {"bf16", "fp8", "int4"}) {
    CHECK_ERROR(
        PF_BUNDLE_VERSION,
        "models.target.cache_dtype is \"" + type +
            "\"; this pilotfish has caches of f16, f32 and int8: export the bundle again with --cache-dtype f16 or "
            "int8",
        parse_manifest(replaced(tiny::kManifest, R"("cache_dtype": "f16")", R"("cache_dtype": ")" + type + '"'),
                       "/bundle"));
  }
}

// Whatever becomes an index, a size or a count has the bound of what it indexes
// or of the arithmetic that it enters.
void test_numbers_have_bounds() {
  for (const auto& [found, bound] :
       {std::pair("\"num_layers\": 2", "1024"), std::pair("\"hidden_size\": 64", "16777216"),
        std::pair("\"intermediate_size\": 128", "16777216"), std::pair("\"num_heads\": 4", "512"),
        std::pair("\"num_kv_heads\": 2", "512"), std::pair("\"head_dim\": 16", "512"),
        std::pair("\"vocab_size\": 104", "16777216"), std::pair("\"num_logits\": 104", "16777216"),
        std::pair("\"max_positions\": 2048", "1073741824")}) {
    const std::string field = std::string(found).substr(0, std::string(found).find(':'));
    expect_corrupt(found, field + ": 2147483647", "expected an integer from 1 to " + std::string(bound));
  }
  expect_corrupt("\"size\": 100", "\"size\": 2147483647", "tokenizer.size: expected an integer from 1 to 16777216");
  expect_corrupt("\"size\": 100", "\"size\": 105", "size: expected at most the target's vocab_size 104, found 105");
  expect_corrupt("[2, 7]", "[2, 100]", "eos_ids: expected an integer from 0 to 99, found 100");
  expect_corrupt("\"eos_ids\"", "\"bos_id\": 100, \"eos_ids\"", "bos_id: expected an integer from 0 to 99, found 100");
  expect_corrupt("\"eos_ids\"", "\"pad_id\": -1, \"eos_ids\"", "pad_id: expected an integer from 0 to 99, found -1");
  parse_manifest(replaced(tiny::kManifest, "\"eos_ids\"", "\"bos_id\": null, \"pad_id\": 99, \"eos_ids\""), "/bundle");
  expect_corrupt("\"num_heads\": 4", "\"taps\": [1, 1], \"num_heads\": 4", "taps: expected each stream once");
  expect_corrupt("\"hidden_size\": 64", "\"taps\": [0, 1, 2], \"hidden_size\": 8388608",
                 "taps: expected at most 2 streams of hidden_size 8388608, found 3");
  expect_corrupt("\"norm\"", "\"layers.0.qkv\"", "tensors[1].name: expected a name of its own");
}

void test_versions() {
  const std::string newer = replaced(tiny::kManifest, "\"format_version\": 1", "\"format_version\": 2");
  CHECK_ERROR(PF_BUNDLE_VERSION, "format version 2, this pilotfish reads version 1", parse_manifest(newer, "/bundle"));
}

// The draft's 128 against the target's 104 are padding beyond the tokenizer's
// 100; 99 would be a missing token.
void test_vocabularies_may_differ_by_padding_only() {
  const std::string mismatched = replaced(tiny::kManifest, "\"vocab_size\": 128", "\"vocab_size\": 99");
  CHECK_ERROR(PF_PAIR_MISMATCH, "the target's vocabulary has 104 tokens, the draft's 99",
              parse_manifest(mismatched, "/bundle"));
}

void test_only_a_draft_may_leave_ids_unscored() {
  expect_corrupt("\"num_logits\": 64", "\"num_logits\": 129", "num_logits: expected at most vocab_size 128, found 129");
  expect_corrupt("\"num_logits\": 104", "\"num_logits\": 64",
                 "num_logits: expected vocab_size: a target scores every id, found 64");
}

void test_logits_may_be_about_other_tokens() {
  const auto with_ids = [](const std::string& ids) {
    return replaced(tiny::kManifest, "\"num_logits\": 64", "\"num_logits\": 3, \"logit_ids\": " + ids);
  };
  const pilotfish::Manifest manifest = parse_manifest(with_ids("[2, 7, 99]"), "/bundle");
  CHECK(manifest.draft->logit_ids == (std::vector<int32_t>{2, 7, 99}));
  CHECK(parse_manifest(with_ids("null"), "/bundle").draft->logit_ids.empty());
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "logit_ids: expected 3 ids, found 2", parse_manifest(with_ids("[2, 7]"), "/bundle"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "ascending", parse_manifest(with_ids("[2, 7, 7]"), "/bundle"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "from 0 to 127", parse_manifest(with_ids("[2, 7, 128]"), "/bundle"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "scores token 110, the tokenizer has",
              parse_manifest(with_ids("[2, 7, 110]"), "/bundle"));
}

const std::string kMedusa = tiny::with_head("medusa", R"("num_predictions": 3, "cache": null, "graphs": {@heads@})");
const std::string kCache =
    R"("cache": {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "max_positions": 4096, "cache_dtype": "f16"})";

void test_heads() {
  const Manifest manifest = parse_manifest(kMedusa, "/bundle");
  CHECK(manifest.head.has_value());
  CHECK_EQ(std::string(manifest.head->kind.name), "medusa");
  CHECK_EQ(manifest.head->graphs.find("heads")->second.file, "head.bin");
  CHECK(manifest.head->taps == (std::vector<int32_t>{2}));
  CHECK(manifest.target.taps == manifest.head->taps);
  CHECK_EQ(manifest.head->num_predictions, 3);
  CHECK_EQ(manifest.head->tensors.size(), size_t{1});
  CHECK(!manifest.head->cache);
  for (const char* kind : {"eagle", "eagle3", "mtp"}) {
    const std::string parts = R"("num_predictions": 0, "graphs": {@features@, @step@}, )" + kCache;
    const Manifest eagle = parse_manifest(tiny::with_head(kind, parts), "/bundle");
    CHECK_EQ(std::string(eagle.head->kind.name), kind);
    CHECK_EQ(eagle.head->cache->max_positions, 4096);
  }
  CHECK(!parse_manifest(tiny::kManifest, "/bundle").head);
}

void test_tensors_that_a_head_shares_with_its_target() {
  const std::string text =
      replaced(kMedusa, "\"num_predictions\": 3", R"("shared": {"lm_head": "norm"}, "num_predictions": 3)");
  const Manifest manifest = parse_manifest(text, "/bundle");
  CHECK_EQ(manifest.head->shared.size(), size_t{1});
  CHECK_EQ(manifest.head->shared[0].name, "lm_head");
  CHECK_EQ(manifest.head->shared[0].target.name, "norm");
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "head.shared.lm_head: expected a tensor of the target, found \"v\"",
              parse_manifest(replaced(text, "\"lm_head\": \"norm\"", "\"lm_head\": \"v\""), "/bundle"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT,
              "head.shared.w: expected a tensor that the head does not have itself, "
              "found \"norm\"",
              parse_manifest(replaced(text, "\"lm_head\": \"norm\"", "\"w\": \"norm\""), "/bundle"));
}

// What a pass reads decides the costs that are guessed without a calibration.
void test_weights_that_a_pass_of_a_head_reads() {
  using pilotfish::HeadGraphs;
  using pilotfish::TensorEntry;
  const auto tensor = [](const char* name, uint64_t num_bytes) {
    return TensorEntry{.name = name, .type = TensorEntry::Type::kU8, .shape = {}, .offset = 0, .num_bytes = num_bytes};
  };
  pilotfish::HeadEntry head{};
  head.kind = {"eagle", HeadGraphs::kLayer};
  head.tensors = {tensor("fc", 10)};
  head.shared = {{"embedding", tensor("embedding", 1000), "target.bin"}};
  CHECK_EQ(head.pass_weight_bytes(), uint64_t{1010});  // it is the output layer too
  head.shared.push_back({"lm_head", tensor("lm_head", 2000), "target.bin"});
  CHECK_EQ(head.pass_weight_bytes(), uint64_t{2010});
  head = {};
  head.kind = {"mlp_speculator", HeadGraphs::kStages};
  head.tensors = {tensor("emb.0", 50), tensor("lm_head.head.0", 60), tensor("lm_head.head.1", 60),
                  tensor("proj.0", 20)};
  CHECK_EQ(head.pass_weight_bytes(), uint64_t{70});
}

void test_heads_that_do_not_fit() {
  const auto expect = [](const std::string& text, const std::string& message) {
    CHECK_ERROR(PF_BUNDLE_CORRUPT, message, parse_manifest(text, "/bundle"));
  };
  const auto broken = [](const std::string& from, const std::string& to) { return replaced(kMedusa, from, to); };
  expect(broken("\"medusa\"", "\"hydra\""), "head.kind: expected medusa, mlp_speculator, eagle, eagle3 or mtp");
  expect(broken("16}], \"taps\": [2]", "16}], \"taps\": [1]"), "head.taps: expected the target's [2], found [1]");
  expect(broken("16}], \"taps\": [2]", "16}], \"taps\": [3]"), "head.taps: expected an integer from 0 to 2");
  expect(broken("\"heads\"", "\"others\""), "head.graphs: expected a graph heads, found [\"others\"]");
  expect(broken("\"num_predictions\": 3", "\"num_predictions\": 0"), "head.num_predictions: expected at least 1");
  expect(broken("\"num_predictions\": 3", "\"num_predictions\": 64"),
         "head.num_predictions: expected an integer from 0");
  expect(broken("\"cache\": null", kCache), "head.cache: expected null");
  expect(broken("\"num_logits\": 104, \"logit_ids\": null", "\"num_logits\": 1, \"logit_ids\": [100]"),
         "head.logit_ids: expected an integer from 0 to 99, found 100");
  expect(tiny::with_head("eagle", R"("num_predictions": 0, "cache": null, "graphs": {@features@, @step@})"),
         "head.cache: expected a cache");
  std::string short_cache = kCache;
  short_cache.replace(short_cache.find("4096"), 4, "2047");
  expect(tiny::with_head("eagle", R"("num_predictions": 0, "graphs": {@features@, @step@}, )" + short_cache),
         "cache.max_positions: expected at least the target's 2048, found 2047");
  expect(tiny::with_head("mlp_speculator", R"("num_predictions": 2, "cache": null, "graphs": {@stage.0@})"),
         "head.graphs: expected a graph stage.1");
}

void test_nesting() {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& text : {std::string(100000, '['), std::string(100000, '{'), deep,
                                  "{\"format\": " + deep + "}", replaced(tiny::kManifest, "[2, 7]", deep)}) {
    CHECK_ERROR(PF_BUNDLE_CORRUPT, "is nested more than 32 deep", parse_manifest(text, "/bundle"));
  }
  parse_manifest(replaced(tiny::kManifest, "\"format\"", "\"a\\\"[\": \"" + std::string(100, '[') + "\", \"format\""),
                 "/bundle");
}

void test_long_values_are_shown_in_part() {
  const std::string text = replaced(tiny::kManifest, "\"tokenizer.json\"", "[\"" + std::string(100000, 'x') + "\"]");
  try {
    parse_manifest(text, "/bundle");
    CHECK(false);
  } catch (const pilotfish::Error& error) {
    CHECK(std::string(error.what()).size() < 400);
    CHECK(std::string(error.what()).ends_with("xxx..."));
  }
}

void test_a_missing_manifest_names_its_path() {
  CHECK_ERROR(PF_FILE_MISSING, "/nonexistent/manifest.json", pilotfish::read_manifest("/nonexistent"));
}

}  // namespace

int main() {
  test_values();
  test_caches();
  test_the_draft_is_optional();
  test_messages_name_file_field_expected_and_found();
  test_a_cache_type_of_another_version_has_a_remedy();
  test_numbers_have_bounds();
  test_versions();
  test_vocabularies_may_differ_by_padding_only();
  test_only_a_draft_may_leave_ids_unscored();
  test_logits_may_be_about_other_tokens();
  test_heads();
  test_tensors_that_a_head_shares_with_its_target();
  test_weights_that_a_pass_of_a_head_reads();
  test_heads_that_do_not_fit();
  test_nesting();
  test_long_values_are_shown_in_part();
  test_a_missing_manifest_names_its_path();
  return check::result();
}
