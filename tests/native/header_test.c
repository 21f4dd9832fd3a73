/* pilotfish.h as a C99 client sees it; compiled with -Wall -Wextra -pedantic
 * -Werror. */
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

  check(pf_request_stop(NULL, 1) == PF_INVALID_ARGUMENT, "no request to stop");

  pf_request_cancel(NULL);
  pf_request_close(NULL);
  pf_engine_close(NULL);
  return num_failed > 0;
}
