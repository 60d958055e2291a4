// Fields of all APIs, sent to chats and completions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "wire/openai/completion_read.h"

namespace kakeya::openai {
namespace {

std::string chat_with(const std::string& field) {
  return R"({"messages":[{"role":"user","content":"a"}],)" + field + "}";
}

// Fields of other APIs: what means the same is done, what would make another answer is refused.
TEST(UnservedFields, AreKnownOfAllApis) {
  const std::pair<const char*, const char*> kOthers[] = {{"system", "\"a\""},
                                                         {"instructions", "\"a\""},
                                                         {"input", "\"a\""},
                                                         {"stop_sequences", "[\"a\"]"},
                                                         {"max_output_tokens", "5"},
                                                         {"num_predict", "5"},
                                                         {"num_ctx", "4096"},
                                                         {"options", "{\"temperature\":0}"},
                                                         {"format", "\"json\""},
                                                         {"output_config", "{\"effort\":\"low\"}"},
                                                         {"text", "{\"verbosity\":\"low\"}"},
                                                         {"previous_response_id", "\"a\""},
                                                         {"context_management", "{\"edits\":[1]}"},
                                                         {"mcp_servers", "[1]"},
                                                         {"images", "[\"a\"]"},
                                                         {"raw", "true"}};
  for (const auto& [name, value] : kOthers) {
    const std::string field = fmt::format("\"{}\":{}", name, value);
    const auto chat = read_chat_request(chat_with(field));
    ASSERT_FALSE(chat.has_value()) << field;
    EXPECT_EQ(chat.error().parameter, name);
    const auto completion = read_completion_request("{\"prompt\":\"a\"," + field + "}");
    ASSERT_FALSE(completion.has_value()) << field;
    EXPECT_EQ(completion.error().parameter, name);
    EXPECT_TRUE(read_chat_request(chat_with(fmt::format("\"{}\":null", name)))) << name;
  }
  for (const char* const name : {"thinking", "reasoning", "reasoning_effort", "enable_thinking"}) {
    const char* const value = std::string_view(name) == "enable_thinking" ? "true" : "{\"a\":1}";
    const auto completion =
        read_completion_request(fmt::format(R"({{"prompt":"a","{}":{}}})", name, value));
    ASSERT_FALSE(completion.has_value()) << name;
    EXPECT_EQ(completion.error().parameter, name);
  }
  const auto read = [](const char* fields) {
    auto request = read_chat_request(chat_with(fields));
    if (!request) ADD_FAILURE() << request.error().message;
    return request.value_or(service::AnswerRequest());
  };
  const auto routed = read(R"("reasoning":{"effort":"high","max_tokens":9,"exclude":false})");
  EXPECT_EQ(routed.chat.arguments, R"({"reasoning_effort":"high"})");
  EXPECT_EQ(routed.thought_budget, 9);
  EXPECT_EQ(read(R"("reasoning":{"enabled":false})").chat.enable_thinking, false);
  EXPECT_EQ(read(R"("thinking":{"type":"disabled"})").chat.enable_thinking, false);
  EXPECT_EQ(read(R"("thinking":{"type":"enabled","budget_tokens":7})").thought_budget, 7);
  EXPECT_EQ(read(R"("think":true)").chat.enable_thinking, true);
  EXPECT_EQ(read(R"("verbosity":"low")").chat.arguments, R"({"verbosity":"low"})");
  EXPECT_FALSE(read_chat_request(chat_with(R"("reasoning":{"exclude":true})")));
}

}  // namespace
}  // namespace kakeya::openai
