// Any bytes as messages of kakeya.v1: read into what the service takes, or refused by name.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "wire/grpc/runtime_messages.h"

namespace {

template <typename Message, typename Read>
void read_message(const std::uint8_t* data, std::size_t size, const Read& read) {
  Message message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return;
  const auto outcome = read(message);
  KAKEYA_CHECK(outcome || !outcome.error().message.empty());
  if (!outcome) KAKEYA_CHECK(!kakeya::wire::to_status(outcome.error()).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kakeya;  // NOLINT(google-build-using-namespace)
  read_message<v1::CreateSessionRequest>(data, size, wire::read_new_session);
  read_message<v1::GenerateRequest>(
      data, size, [](const auto& message) { return wire::read_generation(message, -1); });
  read_message<v1::AppendTokensRequest>(data, size, [](const auto& message) {
    return wire::read_token_ids(message.token_ids(), "token_ids");
  });
  return 0;
}
