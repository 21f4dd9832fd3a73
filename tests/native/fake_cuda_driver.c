/* A libcuda.so.1 that answers what the environment says: FAKE_CUDA_INIT (a CUresult), FAKE_CUDA_VERSION and
 * FAKE_CUDA_CAPABILITIES, a compute capability for each device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 8, MAJOR = 75, INVALID_VALUE = 1 };

static int number(const char* name, int missing) {
  const char* text = getenv(name);
  return text ? atoi(text) : missing;
}

static int capabilities(int* found) {
  char text[128] = "";
  const char* set = getenv("FAKE_CUDA_CAPABILITIES");
  int count = 0;
  if (set) strncpy(text, set, sizeof text - 1);
  for (char* word = strtok(text, " "); word && count < MAX_DEVICES; word = strtok(NULL, " "))
    found[count++] = atoi(word);
  return count;
}

int cuInit(unsigned flags) { return flags == 0 ? number("FAKE_CUDA_INIT", 0) : INVALID_VALUE; }

int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return 0;
}

int cuDeviceGetCount(int* count) {
  int found[MAX_DEVICES];
  *count = capabilities(found);
  return 0;
}

int cuDeviceGet(int* device, int index) {
  *device = index + 100; /* a handle is no index */
  return 0;
}

int cuDeviceGetName(char* name, int capacity, int device) {
  snprintf(name, (size_t)capacity, "Card %d", device - 100);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  int found[MAX_DEVICES];
  if (device - 100 >= capabilities(found)) return INVALID_VALUE;
  *value = attribute == MAJOR ? found[device - 100] / 10 : found[device - 100] % 10;
  return 0;
}
