#include "manifest.h"

#include <string>

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
                 "2147483647, found 0");
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
  expect_corrupt("\"cache_dtype\": \"f16\"", "\"cache_dtype\": \"int8\"", "cache_dtype: expected f16 or f32");
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

void test_a_missing_manifest_names_its_path() {
  CHECK_ERROR(PF_FILE_MISSING, "/nonexistent/manifest.json", pilotfish::read_manifest("/nonexistent"));
}

}  // namespace

int main() {
  test_values();
  test_the_draft_is_optional();
  test_messages_name_file_field_expected_and_found();
  test_versions();
  test_vocabularies_may_differ_by_padding_only();
  test_only_a_draft_may_leave_ids_unscored();
  test_logits_may_be_about_other_tokens();
  test_a_missing_manifest_names_its_path();
  return check::result();
}
