// Errors as values. Every fallible call of the library returns a Status or a Result<T>; nothing
// here throws, and no input of a user makes the library abort. A message that is about an option
// names it as kakeya/options.h does ("SessionOptions::context"), so that a program can put its own
// name there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace kakeya {

// The canonical RPC codes, so that a server maps them one to one. Values are part of the interface.
enum class StatusCode : int {
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

// The code's name as printed in messages, for example "invalid argument".
std::string_view status_code_name(StatusCode code);

// An error in one line: what, expected, got, where.
class Error {
 public:
  Error(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // This error with `where` put before the message, for example the file it was found in.
  Error with_context(std::string_view where) const;

 private:
  StatusCode code_;
  std::string message_;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;
using Unexpected = tl::unexpected<Error>;

}  // namespace kakeya
