/* pilotfish.h as a C99 client sees it; compiled with -Wall -Wextra -pedantic
 * -Werror. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pilotfish.h"

static int num_failed = 0;

static void check(int condition, const char* what) {
  if (!condition) {
    fprintf(stderr, "failed: %s\n", what);
    ++num_failed;
  }
}

static pf_generate_options defaults(void) {
  pf_generate_options options;
  pf_generate_options_init(&options);
  return options;
}

static void check_refused(pf_generate_options options, pf_status status, const char* message) {
  const float logits[4] = {1, 2, 3, 4};
  const int32_t ids[3] = {0, 1, 0};
  float scores[4] = {-7};
  float probs[4];
  check(pf_process_logits(&options, logits, 4, ids, 3, 1, scores, probs) == status, message);
  check(strstr(pf_last_error(), message) != NULL, message);
  check(scores[0] == -7, "out parameters are untouched on failure");
}

/* Each wrong option has its message. */
static void check_sampling_options(void) {
  const pf_logit_bias twice[2] = {{2, 1}, {2, 1}};
  const pf_logit_bias outside = {4, 1};
  const pf_logit_bias infinite = {1, INFINITY};
  const pf_logit_bias everything[4] = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}, {3, -INFINITY}};
  const int32_t stop_id = -1;
  pf_generate_options options;
#define REFUSED(field, value, message) \
  options = defaults();                \
  options.field = value;               \
  check_refused(options, PF_INVALID_ARGUMENT, message)
  REFUSED(temperature, NAN, "temperature is nan, not in [0, 100]");
  REFUSED(temperature, -1, "temperature is -1, not in [0, 100]");
  REFUSED(top_k, -1, "top_k is -1, allowed are 0 to 2147483647");
  REFUSED(top_p, 0, "top_p is 0, not in (0, 1]");
  REFUSED(min_p, 1, "min_p is 1, not in [0, 1)");
  REFUSED(typical_p, NAN, "typical_p is nan, not in (0, 1]");
  REFUSED(repetition_penalty, 0, "repetition_penalty is 0, not in (0, 100]");
  REFUSED(presence_penalty, 101, "presence_penalty is 101, not in [-100, 100]");
  REFUSED(frequency_penalty, NAN, "frequency_penalty is nan, not in [-100, 100]");
  REFUSED(penalty_window, -1, "penalty_window is -1");
  REFUSED(no_repeat_ngram_size, -1, "no_repeat_ngram_size is -1");
  REFUSED(min_new_tokens, -1, "min_new_tokens is -1");
  REFUSED(min_new_tokens, 129, "min_new_tokens is 129, more than max_new_tokens, which is 128");
  REFUSED(num_top_logprobs, 257, "num_top_logprobs is 257, allowed are 0 to 256");
  REFUSED(echo, 2, "echo is 2");
  REFUSED(num_logit_bias, 1, "logit_bias is NULL");
  REFUSED(num_stop_ids, 1, "stop_ids is NULL");
#undef REFUSED
  options = defaults();
  options.logit_bias = twice;
  options.num_logit_bias = 2;
  check_refused(options, PF_INVALID_ARGUMENT, "logit_bias has id 2 twice");
  options.logit_bias = &outside;
  options.num_logit_bias = 1;
  check_refused(options, PF_INVALID_ARGUMENT, "logit_bias has id 4, outside the vocabulary of 4");
  options.logit_bias = &infinite;
  check_refused(options, PF_INVALID_ARGUMENT, "logit_bias of id 1 is inf, must be a number or -inf");
  options.logit_bias = everything;
  options.num_logit_bias = 4;
  check_refused(options, PF_NO_TOKEN_LEFT, "no token is left to follow 2 new tokens: together these ban every id");
  options = defaults();
  options.stop_ids = &stop_id;
  options.num_stop_ids = 1;
  check_refused(options, PF_INVALID_ARGUMENT, "stop_ids has id -1, outside the vocabulary of 4");
}

static void check_process_logits(void) {
  const float logits[4] = {1, 2, -3, 4};
  const int32_t ids[4] = {3, 2, 1, 1};
  float scores[4];
  float probs[4];
  pf_generate_options options = defaults();
  options.repetition_penalty = 2;
  options.frequency_penalty = 0.5f;
  check(pf_process_logits(&options, logits, 4, ids, 4, 2, scores, probs) == PF_OK, "pf_process_logits");
  check(scores[0] == 1 && scores[1] == 0 && scores[2] == -6 && scores[3] == 2, "penalties");
  check(probs[0] == 0 && probs[1] == 0 && probs[2] == 0 && probs[3] == 1, "greedy");
  options.temperature = 1;
  options.top_k = 2;
  check(pf_process_logits(&options, logits, 4, ids, 4, 2, scores, probs) == PF_OK, "pf_process_logits");
  check(probs[1] == 0 && probs[2] == 0 && probs[3] > probs[0] && probs[0] > 0.26f && probs[0] < 0.27f, "top_k");
  check(pf_process_logits(&options, logits, 4, ids, 4, 5, scores, probs) == PF_INVALID_ARGUMENT, "prompt too long");
  check(pf_process_logits(&options, logits, 3, ids, 4, 2, scores, probs) == PF_INVALID_ARGUMENT, "id outside");
  check(pf_process_logits(&options, NULL, 4, ids, 4, 2, scores, probs) == PF_INVALID_ARGUMENT, "no logits");
}

int main(void) {
  pf_engine_options engine_options;
  pf_generate_options generate_options;
  pf_engine* engine = NULL;
  pf_request* request = NULL;
  pf_engine_info info;
  char version[4];

  check(strcmp(pf_version(), PF_VERSION) == 0, "the library's version is the header's");
  check(strlen(pf_cpu_kernels()) > 0, "pf_cpu_kernels names an instruction set");
  check(pf_cpu_cores() >= 1, "pf_cpu_cores counts at least one");

  pf_engine_options_init(&engine_options);
  pf_generate_options_init(&generate_options);
  check(engine_options.struct_size == sizeof engine_options, "pf_engine_options.struct_size");
  check(generate_options.struct_size == sizeof generate_options, "pf_generate_options.struct_size");

  check(pf_engine_open(NULL, &engine_options, &engine) == PF_INVALID_ARGUMENT, "no bundle");
  check(strcmp(pf_last_error(), "bundle is NULL") == 0, "the message names the argument");
  check(pf_engine_open(".", &engine_options, &engine) == PF_INVALID_ARGUMENT, "no ort_library");
  check(strstr(pf_last_error(), "ort_library") != NULL, "the message names the option");
  engine_options.ort_library = "libonnxruntime.so";
  engine_options.struct_size = 3;
  check(pf_plan(".", &engine_options, &info) == PF_INVALID_ARGUMENT, "a struct of another size");
  engine_options.struct_size = sizeof engine_options;
  engine_options.device = 7;
  check(pf_plan(".", &engine_options, &info) == PF_INVALID_ARGUMENT, "a device that does not exist");
  engine_options.device = PF_DEVICE_CPU;
  engine_options.max_draft_tokens = 64;
  check(pf_plan(".", &engine_options, &info) == PF_INVALID_ARGUMENT, "too many draft tokens");
  check(strstr(pf_last_error(), "max_draft_tokens is 64, allowed are 0 to 63") != NULL, "the message names the limit");
  engine_options.max_draft_tokens = 63;
  check(pf_plan("/nonexistent", &engine_options, &info) == PF_FILE_MISSING, "no such bundle");
  check(engine == NULL, "out parameters are untouched on failure");

  check(pf_ort_version("/nonexistent/libonnxruntime.so", version, sizeof version) == PF_ORT_MISSING, "no such library");
  check(pf_engine_get_info(NULL, &info) == PF_INVALID_ARGUMENT, "no engine");
  check(pf_request_open(NULL, NULL, 0, &generate_options, &request) == PF_INVALID_ARGUMENT, "no engine for a request");

  check_sampling_options();
  check_process_logits();
  check(pf_request_stop(NULL, 1) == PF_INVALID_ARGUMENT, "no request to stop");

  pf_request_cancel(NULL);
  pf_request_close(NULL);
  pf_engine_close(NULL);
  return num_failed > 0;
}
