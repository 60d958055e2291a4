#include "service/refusal.h"

#include <string_view>

namespace kakeya::service {

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

}  // namespace kakeya::service
