// Any bytes as the body of a request for an answer: read or refused with a message.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "wire/anthropic/messages_read.h"
#include "wire/ollama/requests_read.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/completion_write.h"
#include "wire/openai/responses_read.h"

namespace {

void check(const kakeya::service::Outcome<kakeya::service::AnswerRequest>& request) {
  // A request that was read can be asked of an engine; the error of another can be told.
  if (request && request->messages.empty() == request->prompts.empty()) std::abort();
  if (!request && (request.error().message.empty() ||
                   kakeya::openai::error_json(request.error()).find('\n') != std::string::npos)) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  check(kakeya::openai::read_chat_request(body));
  check(kakeya::openai::read_completion_request(body));
  check(kakeya::anthropic::read_messages_request(body));
  constexpr std::int64_t kContext = 4096;
  check(kakeya::ollama::read_chat(body, kContext));
  // Without a prompt it asks whether the model is there.
  const auto generate = kakeya::ollama::read_generate(body, kContext);
  if (!generate || !generate->messages.empty() || !generate->prompts.empty()) check(generate);
  const auto none = [](std::string_view) { return nullptr; };
  check(kakeya::openai::read_response_request(body, none)
            .map([](const kakeya::openai::ResponseWish& wish) { return wish.answer; }));
  return 0;
}
