#include "service/refusal.h"

namespace kakeya::server {

HttpError http_error(StatusCode status) {
  switch (status) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
      return {400, "invalid_request_error"};
    case StatusCode::kNotFound:
      return {404, "invalid_request_error"};
    case StatusCode::kResourceExhausted:
      return {429, "rate_limit_error"};
    case StatusCode::kUnimplemented:
      return {501, "invalid_request_error"};
    case StatusCode::kCancelled:
    case StatusCode::kUnavailable:
      return {503, "server_error"};
    case StatusCode::kDeadlineExceeded:
      return {504, "server_error"};
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      break;
  }
  return {500, "server_error"};
}

Refusal refusal_of(const Error& error) {
  Refusal refusal = {.status = error.code(), .message = error.message()};
  for (const std::string_view owner : {"SamplingOptions::", "GenerateOptions::"}) {
    const std::size_t at = refusal.message.find(owner);
    if (at == std::string::npos) continue;
    refusal.message.erase(at, owner.size());
    constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz_";
    const std::size_t end = refusal.message.find_first_not_of(kOfNames, at);
    refusal.parameter = refusal.message.substr(at, end - at);
  }
  return refusal;
}

}  // namespace kakeya::server
