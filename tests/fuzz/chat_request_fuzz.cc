// Any bytes as the body of a chat request: read or refused with a message.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/openai_read.h"
#include "server/openai_write.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto request = kakeya::server::read_chat_request(
      std::string_view(reinterpret_cast<const char*>(data), size));
  // What was read can be asked of an engine; what was not can be told.
  if (request && request->messages.empty()) std::abort();
  if (!request && (request.error().message.empty() ||
                   kakeya::server::error_json(request.error()).find('\n') != std::string::npos)) {
    std::abort();
  }
  return 0;
}
