/* A libonnxruntime.so of before the interfaces that are asked of it. */
#include <stdint.h>

typedef struct {
  const void* (*get_api)(uint32_t version);
  const char* (*get_version_string)(void);
} api_base;

static const void* get_api(uint32_t version) {
  (void)version;
  return 0;
}

static const char* get_version_string(void) { return "1.16.3"; }

const api_base* OrtGetApiBase(void) {
  static const api_base base = {get_api, get_version_string};
  return &base;
}
