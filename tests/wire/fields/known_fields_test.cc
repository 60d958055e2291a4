// Each field of all APIs, sent to each reader of requests.
#include "wire/fields/known_fields.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "runtime/demo_sessions.h"
#include "wire/anthropic/messages_read.h"
#include "wire/ollama/requests_read.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/embeddings.h"
#include "wire/openai/responses_read.h"
#include "wire/openai/text_routes.h"

namespace kakeya::wire {
namespace {

constexpr std::int64_t kContext = 4096;
constexpr std::int64_t kHiddenSize = 128;
// A value of no field's type.
const Json kImpossible = Json::parse(R"([[{"a":[]}]])");

std::vector<RequestKind> all_kinds() {
  std::vector<RequestKind> kinds;
  for (int kind = 0; kind <= static_cast<int>(kLastRequestKind); ++kind) {
    kinds.push_back(static_cast<RequestKind>(kind));
  }
  return kinds;
}

// A good body without other fields.
Json body_of(RequestKind kind) {
  const Json messages = {{{"role", "user"}, {"content", "a"}}};
  switch (kind) {
    case RequestKind::kCompletion:
    case RequestKind::kOllamaGenerate:
    case RequestKind::kOllamaEmbeddings:
    case RequestKind::kText:
      return {{"prompt", "a"}};
    case RequestKind::kResponse:
    case RequestKind::kEmbedding:
    case RequestKind::kOllamaEmbed:
      return {{"input", "a"}};
    case RequestKind::kMessage:
      return {{"messages", messages}, {"max_tokens", 5}};
    case RequestKind::kOllamaOptions:
      return Json::object();
    case RequestKind::kTokens:
      return {{"tokens", {1, 2}}};
    default:
      return {{"messages", messages}};
  }
}

class KnownFields : public testing::Test {
 protected:
  // The field that is refused; "" if none is.
  std::string refused(RequestKind kind, const Json& body) {
    const auto parameter = [](const auto& outcome) {
      return outcome ? std::string() : outcome.error().parameter;
    };
    const std::string text = body.dump();
    switch (kind) {
      case RequestKind::kChat:
        return parameter(openai::read_chat_request(text));
      case RequestKind::kCompletion:
        return parameter(openai::read_completion_request(text));
      case RequestKind::kResponse:
        return parameter(openai::read_response_request(text, [](auto) { return nullptr; }));
      case RequestKind::kEmbedding:
        return parameter(openai::read_embeddings(kHiddenSize, text));
      case RequestKind::kMessage:
        return parameter(anthropic::read_messages_request(text));
      case RequestKind::kCount:
        return parameter(anthropic::read_count_request(text));
      case RequestKind::kOllamaChat:
        return parameter(ollama::read_chat(text, kContext));
      case RequestKind::kOllamaGenerate:
        return parameter(ollama::read_generate(text, kContext));
      case RequestKind::kOllamaEmbed:
        return parameter(ollama::read_embed(text, kContext, kHiddenSize));
      case RequestKind::kOllamaEmbeddings:
        return parameter(ollama::read_embeddings(text, kContext));
      case RequestKind::kOllamaOptions:
        return parameter(ollama::read_chat(
            Json({{"messages", Json::array()}, {"options", body}}).dump(), kContext));
      case RequestKind::kText:
      case RequestKind::kTokenizedChat:
        return parameter(openai::tokenize(*engine_, text));
      case RequestKind::kTemplate:
        return parameter(openai::apply_template(*engine_, text));
      case RequestKind::kTokens:
        return parameter(openai::detokenize(*engine_, text));
    }
    return "no reader";
  }

  std::string refused_with(RequestKind kind, std::string_view name, const Json& value) {
    Json body = body_of(kind);
    body[std::string(name)] = value;
    return refused(kind, body);
  }

  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
};

// True if it is this field, or something in it.
bool is_of(const std::string& parameter, const std::string& name) {
  return parameter == name || parameter.starts_with(name + ".") ||
         parameter.starts_with(name + "[");
}

bool has_truth_value(const Json& values) {
  return std::ranges::any_of(values, [](const Json& value) { return value.is_boolean(); });
}

TEST_F(KnownFields, AreKnownOnceOfEachKind) {
  for (const RequestKind kind : all_kinds()) {
    EXPECT_EQ(refused(kind, body_of(kind)), "") << static_cast<int>(kind);
    std::set<std::string_view> names;
    for (const KnownField& field : known_fields(kind)) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name;
    }
    EXPECT_EQ(names.size(), known_fields(RequestKind::kChat).size()) << static_cast<int>(kind);
  }
}

TEST_F(KnownFields, AreReadWhereTheyAreServed) {
  for (const RequestKind kind : all_kinds()) {
    for (const KnownField& field : known_fields(kind)) {
      if (field.use != FieldUse::kServed) continue;
      const std::string parameter = refused_with(kind, field.name, kImpossible);
      EXPECT_TRUE(is_of(parameter, std::string(field.name)))
          << static_cast<int>(kind) << " " << field.name << ": " << parameter;
    }
  }
}

TEST_F(KnownFields, PassWhereTheyChangeNothing) {
  for (const RequestKind kind : all_kinds()) {
    for (const KnownField& field : known_fields(kind)) {
      if (field.use != FieldUse::kIdle) continue;
      for (const Json& value : {kImpossible, Json("a"), Json(true), Json(7)}) {
        EXPECT_EQ(refused_with(kind, field.name, value), "")
            << static_cast<int>(kind) << " " << field.name << ": " << value;
      }
    }
  }
}

TEST_F(KnownFields, AreRefusedByNameIfTheyAskForSomething) {
  for (const RequestKind kind : all_kinds()) {
    const std::string prefix = kind == RequestKind::kOllamaOptions ? "options." : "";
    for (const KnownField& field : known_fields(kind)) {
      if (field.use != FieldUse::kRefused) continue;
      const Json neutral = Json::parse(field.neutral);
      std::vector<Json> asking = {"some text", 12345.5, !has_truth_value(neutral)};
      // Messages make a chat of a text.
      if (kind != RequestKind::kText || field.name != "messages") asking.push_back(kImpossible);
      for (const Json& value : asking) {
        EXPECT_EQ(refused_with(kind, field.name, value), prefix + std::string(field.name))
            << static_cast<int>(kind) << ": " << value;
      }
      std::vector<Json> idle = {nullptr, "", Json::array(), Json::object()};
      if (!has_truth_value(neutral)) idle.emplace_back(false);
      idle.insert(idle.end(), neutral.begin(), neutral.end());
      for (const Json& value : idle) {
        EXPECT_EQ(refused_with(kind, field.name, value), "")
            << static_cast<int>(kind) << " " << field.name << ": " << value;
      }
    }
  }
}

// A field of no API is no mistake, but for options of a runner, which are its own.
TEST_F(KnownFields, OthersAreIgnored) {
  for (const RequestKind kind : all_kinds()) {
    const bool is_options = kind == RequestKind::kOllamaOptions;
    EXPECT_EQ(refused_with(kind, "of_nobody", kImpossible), is_options ? "options.of_nobody" : "");
  }
}

// One that means the same as another is done, not refused.
TEST_F(KnownFields, OfOtherApisDoTheSame) {
  const auto read = [](const char* fields) {
    auto request = openai::read_chat_request(R"({"messages":[{"role":"user","content":"a"}],)" +
                                             std::string(fields) + "}");
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
  EXPECT_EQ(refused_with(RequestKind::kChat, "reasoning", {{"exclude", true}}),
            "reasoning.exclude");
  const auto response = openai::read_response_request(
      R"({"input":"a","priority":3,"min_tokens":2,"ignore_eos":true,"stop_token_ids":[4]})",
      [](auto) { return nullptr; });
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->answer.priority, 3);
  EXPECT_EQ(response->answer.min_tokens, 2);
  EXPECT_TRUE(response->answer.ignore_eos);
  EXPECT_EQ(response->answer.stop_ids, std::vector<TokenId>{4});
  const auto message = anthropic::read_messages_request(
      R"({"max_tokens":5,"messages":[{"role":"user","content":"a"}],"enable_thinking":false})");
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_EQ(message->chat.enable_thinking, false);
  const auto generate =
      ollama::read_generate(R"({"prompt":"a","enable_thinking":false})", kContext);
  ASSERT_TRUE(generate) << generate.error().message;
  EXPECT_EQ(generate->chat.enable_thinking, false);
}

}  // namespace
}  // namespace kakeya::wire
