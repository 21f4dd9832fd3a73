#include "base/status.h"

namespace pilotfish {
namespace {

std::string& thread_message() {
  thread_local std::string message;
  return message;
}

}  // namespace

void set_last_error(const char* message) noexcept {
  try {
    thread_message() = message;
  } catch (...) {
    thread_message().clear();
  }
}

const char* last_error() noexcept { return thread_message().c_str(); }

}  // namespace pilotfish
