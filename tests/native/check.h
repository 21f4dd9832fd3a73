// Checks for the native tests. A test is a function; a failed check prints
// where and both values, and the program fails.
#pragma once

#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>

#include "base/status.h"

namespace check {

inline int num_failed = 0;

template <typename... Parts>
void failed(const char* file, int line, const Parts&... parts) {
  ++num_failed;
  (std::cerr << file << ":" << line << ": " << ... << parts) << std::endl;
}

template <typename Body>
void expect_error(const char* file, int line, pf_status status, const std::string& part, Body&& body) {
  try {
    body();
    failed(file, line, "expected status ", status, ", nothing was thrown");
  } catch (const pilotfish::Error& error) {
    if (error.status() != status)
      failed(file, line, "status ", error.status(), ", expected ", status, ": ", error.what());
    if (std::string(error.what()).find(part) == std::string::npos) {
      failed(file, line, "message \"", error.what(), "\" does not say \"", part, "\"");
    }
  }
}

inline int result() {
  if (num_failed > 0) std::cerr << num_failed << " checks failed" << std::endl;
  return num_failed > 0 ? 1 : 0;
}

}  // namespace check

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) check::failed(__FILE__, __LINE__, "failed: ", #condition); \
  } while (false)

#define CHECK_EQ(found, expected)                                                                    \
  do {                                                                                               \
    const auto found_value = (found);                                                                \
    const auto expected_value = (expected);                                                          \
    if (!(found_value == expected_value)) {                                                          \
      check::failed(__FILE__, __LINE__, #found, " is ", found_value, ", expected ", expected_value); \
    }                                                                                                \
  } while (false)

#define CHECK_NEAR(found, expected, tolerance)                                                              \
  do {                                                                                                      \
    const double found_value = (found);                                                                     \
    const double expected_value = (expected);                                                               \
    if (!(std::abs(found_value - expected_value) <= (tolerance))) {                                         \
      check::failed(__FILE__, __LINE__, #found, " is ", found_value, ", expected ", expected_value, " +- ", \
                    tolerance);                                                                             \
    }                                                                                                       \
  } while (false)

// The body throws a pilotfish::Error with this status, whose message says
// `part`.
#define CHECK_ERROR(status, part, ...) check::expect_error(__FILE__, __LINE__, status, part, [&] { __VA_ARGS__; })
