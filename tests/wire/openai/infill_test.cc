// POST /infill: bodies as editors send them, and answers over HTTP.
#include "wire/openai/infill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "service/infill_model.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"

namespace kakeya::openai {
namespace {

using nlohmann::json;

service::Outcome<InfillRequest> read_infill(const json& fields) {
  json body = {{"input_prefix", "a"}, {"input_suffix", "b"}};
  body.update(fields);
  return read_infill_request(body.dump());
}

TEST(OpenaiInfill, ReadsWhatEditorsSend) {
  // As llama.vim does.
  const auto request = read_infill({{"input_extra", {{{"filename", "a.h"}, {"text", "int a;"}}}},
                                    {"prompt", "  ret"},
                                    {"n_predict", 128},
                                    {"stop", json::array()},
                                    {"n_indent", 2},
                                    {"top_k", 40},
                                    {"top_p", 0.9},
                                    {"stream", false},
                                    {"samplers", {"top_k", "top_p", "infill"}},
                                    {"cache_prompt", true},
                                    {"t_max_prompt_ms", 500},
                                    {"t_max_predict_ms", 1500},
                                    {"response_fields", {"content", "timings/prompt_n"}}});
  ASSERT_TRUE(request.has_value()) << request.error().message;
  const service::AnswerRequest& answer = request->answer;
  ASSERT_EQ(answer.prompts.size(), 1u);
  EXPECT_EQ(answer.prompts[0].text, "a");
  EXPECT_EQ(answer.prompts[0].suffix, "b");
  EXPECT_EQ(answer.prompts[0].begun, "  ret");
  ASSERT_EQ(answer.prompts[0].files.size(), 1u);
  EXPECT_EQ(answer.prompts[0].files[0].name, "a.h");
  EXPECT_EQ(answer.prompts[0].files[0].text, "int a;");
  EXPECT_EQ(answer.max_tokens, 128);
  EXPECT_EQ(answer.line_limits->least_indent, 2);
  EXPECT_EQ(answer.line_limits->most_seconds, 1.5);
  EXPECT_EQ(answer.sampling.top_k, 40);
  EXPECT_EQ(answer.sampling.temperature, 1.0F) << "no sampler of that name";
  EXPECT_EQ(answer.sampling.min_p, 0.0F);
  EXPECT_EQ(request->response_fields, (std::vector<std::string>{"content", "timings/prompt_n"}));
  EXPECT_EQ(read_infill({{"n_predict", 0}})->answer.max_tokens, 0);
  EXPECT_EQ(read_infill({{"n_predict", -1}})->answer.max_tokens, std::nullopt);
  EXPECT_EQ(read_infill({{"temperature", 0}})->answer.sampling.temperature, 0.0F);
  EXPECT_FALSE(read_infill({{"n_indent", 0}, {"t_max_predict_ms", -1}})->answer.line_limits);
}

TEST(OpenaiInfill, RefusesByNameWhatItCannotDo) {
  for (const auto& [name, value] : {std::pair<const char*, json>{"input_prefix", nullptr},
                                    {"input_suffix", 7},
                                    {"prompt", {1, 2}},
                                    {"input_extra", "a"},
                                    {"input_extra", {{{"filename", "a"}}}},
                                    {"input_extra", {{{"filename", 1}, {"text", "a"}}}},
                                    {"suffix", "b"},
                                    {"n_indent", -1},
                                    {"t_max_predict_ms", "1"},
                                    {"response_fields", {1}},
                                    {"samplers", "top_k"},
                                    {"samplers", {"top_p", "top_k"}},
                                    {"samplers", {"mirostat"}},
                                    {"echo", true},
                                    {"logprobs", 1},
                                    {"n", 2},
                                    {"best_of", 2},
                                    {"temperature", "hot"}}) {
    const auto refused = read_infill({{name, value}});
    ASSERT_FALSE(refused.has_value()) << name << " " << value;
    EXPECT_EQ(refused.error().parameter, name) << value;
  }
}

class InfillOverHttp : public testing::Test {
 protected:
  std::string ask(const char* path, const json& body) {
    test::HttpClient client(server_.port());
    client.send({}, test::http::verb::post, path, body.dump());
    const test::HttpResponse response = client.receive();
    EXPECT_EQ(response.result_int(), 200u) << response.body();
    return response.body();
  }
  json fill(json fields) {
    fields.update({{"input_prefix", prefix_}, {"input_suffix", " to 12."}, {"temperature", 0}});
    return json::parse(ask("/infill", fields));
  }

  const std::string prefix_ = "Count from 5" + std::string(600, '.');
  test::InfillModel model_;
  std::shared_ptr<Engine> engine_ = model_.open();
  test::TestServer server_{*engine_, service::ServiceOptions()};
};

TEST_F(InfillOverHttp, AnswersAsCompletionsWithASuffixDo) {
  const json warm = fill({{"n_predict", 0}});
  EXPECT_EQ(warm["content"], "");
  EXPECT_EQ(warm["tokens_predicted"], 0);
  const json filled = fill({{"n_predict", 6}});
  EXPECT_GT(filled["tokens_cached"], 0) << "that of n_predict 0 was run";
  EXPECT_EQ(filled["tokens_predicted"], 6);
  EXPECT_EQ(filled["stop_type"], "limit");
  const json same = json::parse(
      ask("/v1/completions",
          {{"prompt", prefix_}, {"suffix", " to 12."}, {"temperature", 0}, {"max_tokens", 6}}));
  EXPECT_EQ(filled["content"], same["choices"][0]["text"]);
  EXPECT_EQ(fill({{"n_predict", 6}, {"response_fields", {"content", "timings/prompt_n"}}}),
            (json{{"content", filled["content"]}}));
  // The last character of the answer ends it.
  const std::string text = filled["content"];
  const json stopped = fill({{"n_predict", 6}, {"stop", {text.substr(text.size() - 1)}}});
  EXPECT_EQ(stopped["stop_type"], "word");
  EXPECT_EQ(stopped["stopping_word"], text.substr(text.size() - 1));
}

TEST_F(InfillOverHttp, StreamsPiecesAndHowItEnded) {
  const json body = {
      {"input_prefix", prefix_}, {"input_suffix", "b"}, {"temperature", 0}, {"n_predict", 6}};
  json streamed = body;
  streamed["stream"] = true;
  std::string content;
  const auto events = test::event_texts(ask("/infill", streamed));
  for (const std::string& event : events) content += json::parse(event)["content"];
  EXPECT_EQ(content, json::parse(ask("/infill", body))["content"]);
  EXPECT_EQ(json::parse(events.front())["stop"], false);
  EXPECT_EQ(json::parse(events.back())["stop"], true);
  EXPECT_EQ(json::parse(events.back())["tokens_predicted"], 6);
}

}  // namespace
}  // namespace kakeya::openai
