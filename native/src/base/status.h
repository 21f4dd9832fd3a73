// How failures travel: an Error carries its pf_status up to api.cpp, where guard() turns it into a return value and a
// message that belongs to the calling thread.
#pragma once

#include <exception>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "pilotfish.h"

namespace pilotfish {

class Error : public std::exception {
 public:
  Error(pf_status status, std::string message) : status_(status), message_(std::move(message)) {}
  pf_status status() const noexcept { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  pf_status status_;
  std::string message_;
};

// Throws an Error whose message is the parts, streamed one after the other.
template <typename... Parts>
[[noreturn]] void fail(pf_status status, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(status, message.str());
}

// Stores the calling thread's message; a message that does not fit in memory becomes an empty one.
void set_last_error(const char* message) noexcept;
const char* last_error() noexcept;

// Runs a body of the C API. Whatever it throws ends here.
template <typename Body>
pf_status guard(Body&& body) noexcept {
  try {
    body();
    return PF_OK;
  } catch (const Error& error) {
    set_last_error(error.what());
    return error.status();
  } catch (const std::invalid_argument& error) {
    set_last_error(error.what());
    return PF_INVALID_ARGUMENT;
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
    return PF_OUT_OF_MEMORY;
  } catch (const std::system_error& error) {  // a thread that the system refuses, for want of memory or of threads
    set_last_error(error.what());
    return error.code() == std::errc::resource_unavailable_try_again ? PF_OUT_OF_MEMORY : PF_INTERNAL;
  } catch (const std::exception& error) {
    set_last_error(error.what());
    return PF_INTERNAL;
  } catch (...) {
    set_last_error("an exception of unknown type");
    return PF_INTERNAL;
  }
}

}  // namespace pilotfish
