#include "base/status.h"

namespace kakeya {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kDeadlineExceeded:
      return "deadline exceeded";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kFailedPrecondition:
      return "failed precondition";
    case StatusCode::kUnimplemented:
      return "unimplemented";
    case StatusCode::kInternal:
      return "internal";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kDataLoss:
      return "data loss";
  }
  return "unknown";
}

Error Error::with_context(std::string_view where) const {
  return Error(code_, fmt::format("{}: {}", where, message_));
}

}  // namespace kakeya
