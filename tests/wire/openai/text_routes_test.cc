// Routes without passes of the scheduler: ids, texts and vectors are the library's.
#include "wire/openai/text_routes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/demo_sessions.h"
#include "wire/openai/embeddings.h"

namespace kakeya::openai {
namespace {

using nlohmann::json;

class TextRoutes : public testing::Test {
 protected:
  json ok(const service::Outcome<std::string>& answer) {
    EXPECT_TRUE(answer.has_value()) << answer.error().message;
    return answer ? json::parse(*answer) : json();
  }
  static void expect_refusal(const service::Outcome<std::string>& answer, const char* parameter) {
    ASSERT_FALSE(answer.has_value()) << *answer;
    EXPECT_EQ(answer.error().parameter, parameter);
    EXPECT_NE(answer.error().message.find("expected"), std::string::npos);
  }

  // The vectors are those that the engine makes alone.
  service::Outcome<std::string> embeddings(const std::string& body) {
    const auto wish = read_embeddings(engine_->hidden_size(), body);
    if (!wish) return tl::unexpected(wish.error());
    const auto known = service::check_model({.model_name = "m"}, wish->request.model);
    if (!known) return tl::unexpected(known.error());
    const auto texts = service::encode_texts(*engine_, wish->request);
    if (!texts) return tl::unexpected(texts.error());
    std::vector<service::TextResult> results;
    for (const auto& ids : texts->ids) {
      results.push_back({.embedding = engine_->embed(ids, wish->request.options).value()});
    }
    return embeddings_json(*wish, "m", texts->tokens, results);
  }

  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
  const Tokenizer& tokenizer_ = *engine_->tokenizer().value();
};

TEST_F(TextRoutes, IdsAreTheTokenizersAndGoBack) {
  const std::vector<TokenId> plain = tokenizer_.encode("a cat").value();
  const json bare = ok(tokenize(*engine_, R"({"content":"a cat","add_special":false})"));
  EXPECT_EQ(bare["tokens"], json(plain));
  EXPECT_EQ(bare["count"], plain.size());
  std::vector<TokenId> begun = plain;
  begun.insert(begun.begin(), engine_->bos_id());
  EXPECT_EQ(ok(tokenize(*engine_, R"({"prompt":"a cat"})"))["tokens"], json(begun));
  EXPECT_EQ(ok(tokenize(*engine_, R"({"prompt":"<bos>a cat"})"))["tokens"], json(begun));
  const json back = ok(detokenize(*engine_, json({{"tokens", begun}}).dump()));
  EXPECT_EQ(back["content"], tokenizer_.decode(begun, false));
  const json pieces = ok(tokenize(*engine_, R"({"content":"a cat","with_pieces":true})"))["tokens"];
  std::string text;
  for (const json& token : pieces) text += token["piece"].get<std::string>();
  EXPECT_EQ(text, back["content"]);
  // A text of somebody else spells no control tokens.
  EXPECT_EQ(ok(tokenize(*engine_, R"({"prompt":"<bos>a","parse_special":false})"))["tokens"].size(),
            1 + tokenizer_.encode("<bos>a", {.parse_special = false}).value().size());
  expect_refusal(tokenize(*engine_, R"({"prompt":"a","return_token_strs":true})"),
                 "return_token_strs");
  const json beyond = {{"tokens", {1, engine_->vocab_size()}}};
  expect_refusal(detokenize(*engine_, beyond.dump()), "tokens");
  expect_refusal(tokenize(*engine_, "{}"), "content");
  expect_refusal(tokenize(*engine_, R"({"prompt":[]})"), "prompt");
  expect_refusal(detokenize(*engine_, R"({"tokens":["a"]})"), "tokens");
  expect_refusal(detokenize(*engine_, R"({"tokens":7})"), "tokens");
}

TEST_F(TextRoutes, NamesTheTokensAtTheEndsOfTexts) {
  const json info = ok(tokenizer_json(*engine_));
  EXPECT_EQ(tokenizer_.token_id(info["bos_token"].get<std::string>()), engine_->bos_id());
  EXPECT_EQ(tokenizer_.token_id(info["eos_token"].get<std::string>()), engine_->stop_ids().front());
}

TEST_F(TextRoutes, TemplatesAreThoseOfAnswers) {
  const std::string body = R"({"messages":[{"role":"user","content":"hello"}]})";
  const ChatMessage message = {.role = "user", .content = "hello"};
  const ChatPrompt prompt = engine_->apply_chat_template({&message, 1}).value();
  EXPECT_EQ(ok(apply_template(*engine_, body))["prompt"], prompt.text);
  EXPECT_EQ(ok(tokenize(*engine_, body))["tokens"],
            json(tokenizer_.encode(prompt.text, {.plain = prompt.plain}).value()));
  expect_refusal(apply_template(*engine_, R"({"messages":[]})"), "messages");
}

TEST_F(TextRoutes, TemplatesAreToldWhetherToThink) {
  const auto prompt = [&](const char* arguments) {
    return apply_template(*engine_, fmt::format(R"({{"messages":[{{"role":"user",)"
                                                R"("content":"a"}}],)"
                                                R"("chat_template_kwargs":{}}})",
                                                arguments));
  };
  const ChatMessage message = {.role = "user", .content = "a"};
  const ChatPrompt thinking =
      engine_->apply_chat_template({&message, 1}, {.enable_thinking = true}).value();
  EXPECT_EQ(ok(prompt(R"({"enable_thinking":true})"))["prompt"], thinking.text);
  const json without = ok(prompt("{}"))["prompt"];
  EXPECT_NE(without, thinking.text);
  EXPECT_EQ(ok(prompt(R"({"enable_thinking":false})"))["prompt"], without);
  expect_refusal(prompt("7"), "chat_template_kwargs");
  // An argument that the template does not ask for changes nothing.
  EXPECT_EQ(ok(prompt(R"({"thinking":true})"))["prompt"], without);
  expect_refusal(prompt(R"({"messages":[]})"), "chat_template_kwargs");
  expect_refusal(prompt(R"({"enable_thinking":1})"), "enable_thinking");
}

TEST_F(TextRoutes, VectorsAreTheEngines) {
  std::vector<TokenId> ids = tokenizer_.encode("a cat").value();
  ids.insert(ids.begin(), engine_->bos_id());
  const auto ask = [&](const json& more) {
    json body = {{"model", "m"}, {"input", "a cat"}};
    body.update(more);
    return embeddings(body.dump());
  };
  const json last = ok(ask(json::object()));
  EXPECT_EQ(last["data"][0]["embedding"].get<std::vector<float>>(), engine_->embed(ids).value());
  EXPECT_EQ(last["usage"]["prompt_tokens"], ids.size());
  const json mean = ok(ask({{"pooling", "mean"}, {"input", json::array({ids, ids})}}));
  EXPECT_EQ(mean["data"].size(), 2u);
  EXPECT_EQ(mean["data"][1]["embedding"].get<std::vector<float>>(),
            engine_->embed(ids, {.pooling = Pooling::kMean}).value());
  const std::string coded = ok(ask({{"encoding_format", "base64"}}))["data"][0]["embedding"];
  EXPECT_EQ(coded.size(), (static_cast<std::size_t>(engine_->hidden_size()) * 4 + 2) / 3 * 4);
  expect_refusal(ask({{"input", 7}}), "input");
  expect_refusal(ask({{"input", nullptr}}), "input");
  expect_refusal(ask({{"input", json::array({json::array()})}}), "input");
  EXPECT_EQ(ok(ask({{"dimensions", engine_->hidden_size()}})), last);
  expect_refusal(ask({{"dimensions", 64}}), "dimensions");
  expect_refusal(ask({{"truncate", true}}), "truncate");
  const json raw = ok(ask({{"normalize", false}}));
  EXPECT_EQ(raw["data"][0]["embedding"].get<std::vector<float>>(),
            engine_->embed(ids, {.normalize = false}).value());
  const std::vector<TokenId> half(static_cast<std::size_t>(service::kMostEmbeddingTokens / 2 + 1),
                                  5);
  expect_refusal(ask({{"input", json::array({half, half})}}), "input");
  expect_refusal(ask({{"encoding_format", "hex"}}), "encoding_format");
  expect_refusal(ask({{"pooling", "max"}}), "pooling");
  expect_refusal(ask({{"model", "other"}}), "model");
  expect_refusal(ask({{"input", std::vector<std::string>(service::kMostEmbeddings + 1, "a")}}),
                 "input");
}

}  // namespace
}  // namespace kakeya::openai
