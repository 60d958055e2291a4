// Responses as clients get them: whole, and in events that add up to the same.
#include "wire/openai/responses_write.h"

#include <gmock/gmock.h>

#include "wire/openai/responses_events.h"

namespace kakeya::openai {
namespace {

using nlohmann::json;
using service::AnswerPiece;
using service::FinishReason;

ResponsesWriter writer_to(ResponsesWriter::Keep keep = nullptr, ClientTools tools = {}) {
  static const Tokenizer kTokenizer = Tokenizer::load(KAKEYA_DEMO_MODEL "/tokenizer.json").value();
  return {kTokenizer,
          "resp_x_7",
          "m",
          11,
          {{"instructions", nullptr}, {"metadata", {{"k", "v"}}}},
          std::move(tools),
          std::move(keep)};
}

// An answer that thinks, says, calls twice and says more; the second call comes in two pieces.
std::vector<AnswerPiece> long_answer() {
  std::vector<AnswerPiece> pieces(4);
  pieces[0].reasoning = "h";
  pieces[1].reasoning = "m";
  pieces[1].text = "a";
  pieces[2].text = "bc";
  pieces[2].tool_calls = {{.index = 0, .id = "x", .name = "f", .arguments = "{\"k\":1}", .at = 1},
                          {.index = 1, .id = "y", .name = "g", .arguments = "{\"l\"", .at = 2}};
  pieces[3].text = "d";
  pieces[3].tool_calls = {{.index = 1, .arguments = ":2}"}};
  return pieces;
}

std::string stream_of(ResponsesWriter& writer,
                      const std::vector<AnswerPiece>& pieces,
                      FinishReason reason) {
  std::string events = writer.begin(0);
  for (const AnswerPiece& piece : pieces) events += writer.piece(0, piece);
  events += writer.end(0, {.reason = reason});
  return events + writer.done({.prompt_tokens = 9, .completion_tokens = 4, .cached_tokens = 5});
}

json whole_of(ResponsesWriter& writer,
              const std::vector<AnswerPiece>& pieces,
              FinishReason reason) {
  service::WholeAnswer whole;
  for (const AnswerPiece& piece : pieces) append(whole.piece, piece);
  whole.end.reason = reason;
  return json::parse(
      writer.whole({whole}, {.prompt_tokens = 9, .completion_tokens = 4, .cached_tokens = 5}));
}

TEST(ResponsesWriter, WritesAWholeResponse) {
  ResponsesWriter writer = writer_to();
  EXPECT_EQ(whole_of(writer, long_answer(), FinishReason::kToolCalls), json::parse(R"({
    "id":"resp_x_7","object":"response","created_at":11,"status":"completed","error":null,
    "incomplete_details":null,"model":"m","instructions":null,"metadata":{"k":"v"},
    "output":[
      {"id":"rs_x_7_0","type":"reasoning","status":"completed","summary":[],
       "content":[{"type":"reasoning_text","text":"hm"}]},
      {"id":"msg_x_7_1","type":"message","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"ab","annotations":[],"logprobs":[]}]},
      {"id":"fc_x_7_2","type":"function_call","status":"completed","call_id":"call_x","name":"f",
       "arguments":"{\"k\":1}"},
      {"id":"msg_x_7_3","type":"message","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"c","annotations":[],"logprobs":[]}]},
      {"id":"fc_x_7_4","type":"function_call","status":"completed","call_id":"call_y","name":"g",
       "arguments":"{\"l\":2}"},
      {"id":"msg_x_7_5","type":"message","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"d","annotations":[],"logprobs":[]}]}],
    "usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":5},"output_tokens":4,
             "output_tokens_details":{"reasoning_tokens":0},"total_tokens":13}})"));
}

TEST(ResponsesWriter, SaysWhatCouldNotBeKept) {
  const auto keep = [](const StoredResponse&) -> std::string { return "the disk is full"; };
  ResponsesWriter whole = writer_to(keep);
  const json response = whole_of(whole, long_answer(), FinishReason::kStop);
  EXPECT_EQ(response["store"], false);
  EXPECT_EQ(response["kakeya"], (json{{"not_kept", {{"response", "the disk is full"}}}}));
  ResponsesWriter streamed = writer_to(keep);
  const auto events =
      test::response_events(stream_of(streamed, long_answer(), FinishReason::kStop));
  EXPECT_EQ(events.back()["response"]["store"], false);
  EXPECT_EQ(events.back()["response"]["kakeya"], response["kakeya"]);
}

TEST(ResponsesWriter, EventsAddUpToTheWhole) {
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kToolCalls, FinishReason::kLength}) {
    std::vector<AnswerPiece> only_text(2);
    only_text[0].text = "a";
    only_text[1].text = "b";
    for (const auto& pieces : {long_answer(), only_text, std::vector<AnswerPiece>(1)}) {
      ResponsesWriter streamed = writer_to();
      ResponsesWriter whole = writer_to();
      EXPECT_EQ(test::added_up(test::response_events(stream_of(streamed, pieces, reason))),
                whole_of(whole, pieces, reason));
    }
  }
}

TEST(ResponsesWriter, EventsHaveOneTranscript) {
  ResponsesWriter writer = writer_to();
  std::vector<AnswerPiece> pieces(2);
  pieces[0].reasoning = "h";
  pieces[1].text = "a";
  pieces[1].tool_calls = {{.index = 0, .id = "x", .name = "f", .arguments = "{}", .at = 1}};
  std::string seen;
  for (json event : test::response_events(stream_of(writer, pieces, FinishReason::kToolCalls))) {
    std::string line = event["type"];
    event.erase("type");
    event.erase("sequence_number");
    if (event.contains("response")) event = event["response"]["status"];
    seen += line.substr(std::string_view("response.").size()) + " " + event.dump() + "\n";
  }
  EXPECT_EQ(seen, R"(created "in_progress"
in_progress "in_progress"
output_item.added {"item":{"content":[],"id":"rs_x_7_0","status":"in_progress","summary":[],"type":"reasoning"},"output_index":0}
content_part.added {"content_index":0,"item_id":"rs_x_7_0","output_index":0,"part":{"text":"","type":"reasoning_text"}}
reasoning_text.delta {"content_index":0,"delta":"h","item_id":"rs_x_7_0","output_index":0}
reasoning_text.done {"content_index":0,"item_id":"rs_x_7_0","output_index":0,"text":"h"}
content_part.done {"content_index":0,"item_id":"rs_x_7_0","output_index":0,"part":{"text":"h","type":"reasoning_text"}}
output_item.done {"item":{"content":[{"text":"h","type":"reasoning_text"}],"id":"rs_x_7_0","status":"completed","summary":[],"type":"reasoning"},"output_index":0}
output_item.added {"item":{"content":[],"id":"msg_x_7_1","role":"assistant","status":"in_progress","type":"message"},"output_index":1}
content_part.added {"content_index":0,"item_id":"msg_x_7_1","output_index":1,"part":{"annotations":[],"logprobs":[],"text":"","type":"output_text"}}
output_text.delta {"content_index":0,"delta":"a","item_id":"msg_x_7_1","logprobs":[],"output_index":1}
output_text.done {"content_index":0,"item_id":"msg_x_7_1","logprobs":[],"output_index":1,"text":"a"}
content_part.done {"content_index":0,"item_id":"msg_x_7_1","output_index":1,"part":{"annotations":[],"logprobs":[],"text":"a","type":"output_text"}}
output_item.done {"item":{"content":[{"annotations":[],"logprobs":[],"text":"a","type":"output_text"}],"id":"msg_x_7_1","role":"assistant","status":"completed","type":"message"},"output_index":1}
output_item.added {"item":{"arguments":"","call_id":"call_x","id":"fc_x_7_2","name":"f","status":"in_progress","type":"function_call"},"output_index":2}
function_call_arguments.delta {"delta":"{}","item_id":"fc_x_7_2","output_index":2}
function_call_arguments.done {"arguments":"{}","item_id":"fc_x_7_2","name":"f","output_index":2}
output_item.done {"item":{"arguments":"{}","call_id":"call_x","id":"fc_x_7_2","name":"f","status":"completed","type":"function_call"},"output_index":2}
completed "completed"
)");
}

// Clients tell tools of one name by their namespaces, the model by the names that it is shown.
TEST(ResponsesWriter, NamesToolsAsItsClientDoes) {
  const ClientTools tools = {{"s__f", {.space = "s", .name = "f"}}, {"f", {.name = "f"}}};
  std::vector<AnswerPiece> pieces(1);
  pieces[0].tool_calls = {{.index = 0, .id = "x", .name = "s__f", .arguments = "{}", .at = 0},
                          {.index = 1, .id = "y", .name = "f", .arguments = "{}", .at = 0},
                          {.index = 2, .id = "z", .name = "t__g", .arguments = "{}", .at = 0}};
  std::string names;
  const auto keep = [&](const StoredResponse& stored) -> std::string {
    for (const ToolCall& call : stored.messages.front().tool_calls) names += call.name + " ";
    return {};
  };
  ResponsesWriter whole = writer_to(keep, tools);
  const json response = whole_of(whole, pieces, FinishReason::kToolCalls);
  EXPECT_EQ(names, "s__f f t__g ");
  EXPECT_EQ(response["output"][0]["name"], "f");
  EXPECT_EQ(response["output"][0]["namespace"], "s");
  EXPECT_EQ(response["output"][1]["name"], "f");
  EXPECT_FALSE(response["output"][1].contains("namespace"));
  EXPECT_EQ(response["output"][2]["name"], "t__g");
  ResponsesWriter streamed = writer_to(nullptr, tools);
  EXPECT_EQ(
      test::added_up(test::response_events(stream_of(streamed, pieces, FinishReason::kToolCalls))),
      response);
}

// A tool that takes a text is called with it, not with the JSON that the model has written.
TEST(ResponsesWriter, CallsCustomToolsWithTheirText) {
  const ClientTools tools = {{"patch", {.name = "patch", .is_custom = true}}};
  const auto call = [&](const std::vector<std::string>& arguments, FinishReason reason) {
    std::vector<AnswerPiece> pieces;
    for (const std::string& part : arguments) {
      const bool is_first = pieces.empty();
      pieces.emplace_back().tool_calls = {{.index = 0,
                                           .id = is_first ? "x" : "",
                                           .name = is_first ? "patch" : "",
                                           .arguments = part,
                                           .at = 0}};
    }
    ResponsesWriter streamed = writer_to(nullptr, tools);
    const json response =
        test::added_up(test::response_events(stream_of(streamed, pieces, reason)));
    ResponsesWriter whole = writer_to(nullptr, tools);
    EXPECT_EQ(response, whole_of(whole, pieces, reason));
    return response["output"][0];
  };
  EXPECT_EQ(call({R"({"in)", R"(put": "a\n\"b\"")", "}"}, FinishReason::kToolCalls),
            json::parse(R"({"id":"ctc_x_7_0","type":"custom_tool_call","status":"completed",
                            "call_id":"call_x","name":"patch","input":"a\n\"b\""})"));
  // As much of it as there is.
  const std::pair<const char*, const char*> kCut[] = {{R"({"in)", ""},
                                                      {R"({"input":)", ""},
                                                      {R"({"input":"a)", "a"},
                                                      {R"({"input":"a\)", "a"},
                                                      {R"({"input":"a\ud83d\ude)", "a"},
                                                      {R"({"input":"a")", "a"}};
  for (const auto& [arguments, input] : kCut) {
    const json item = call({arguments}, FinishReason::kLength);
    EXPECT_EQ(item["input"], input) << arguments;
    EXPECT_EQ(item["status"], "incomplete");
  }
}

// A thought's are not a message's; a token that has no text yet has them with the text that comes.
TEST(ResponsesWriter, LogProbabilitiesComeWithTheirText) {
  const auto token = [](TokenId id, bool thought) {
    service::GeneratedToken made = {.id = id, .thought = thought};
    made.logprobs = TokenLogprobs{.token = {.id = id, .logprob = -1.0F}, .top = {}};
    return made;
  };
  std::vector<AnswerPiece> pieces(4);
  pieces[0].reasoning = "h";
  pieces[0].tokens = {token(300, true)};
  pieces[1].tokens = {token(301, false)};
  pieces[2].text = "a";
  pieces[2].tokens = {token(302, false)};
  pieces[3].tokens = {token(303, false)};
  ResponsesWriter streamed = writer_to();
  const json response =
      test::added_up(test::response_events(stream_of(streamed, pieces, FinishReason::kStop)));
  EXPECT_EQ(response["output"][1]["content"][0]["logprobs"].size(), 3u);
  ResponsesWriter whole = writer_to();
  EXPECT_EQ(response, whole_of(whole, pieces, FinishReason::kStop));
}

TEST(ResponsesWriter, SaysThatAnAnswerWasCut) {
  ResponsesWriter writer = writer_to();
  const json cut = whole_of(writer, long_answer(), FinishReason::kLength);
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut["output"][4]["status"], "completed");
  EXPECT_EQ(cut["output"][5]["status"], "incomplete");
}

TEST(ResponsesWriter, AFailureIsTheLastEvent) {
  int kept = 0;
  ResponsesWriter writer = writer_to([&kept](const StoredResponse&) -> std::string {
    ++kept;
    return {};
  });
  std::string stream = writer.begin(0);
  AnswerPiece piece;
  piece.text = "a";
  stream += writer.piece(0, piece);
  stream += writer.error({.status = StatusCode::kResourceExhausted, .message = "no memory"});
  const json failed = test::added_up(test::response_events(stream));
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["error"], (json{{"code", "rate_limit_exceeded"}, {"message", "no memory"}}));
  EXPECT_EQ(failed["output"][0]["status"], "incomplete");
  EXPECT_EQ(kept, 0);
}

TEST(ResponsesWriter, KeepsWhatItsClientGets) {
  std::vector<StoredResponse> kept;
  const auto keep = [&kept](StoredResponse response) -> std::string {
    kept.push_back(std::move(response));
    return {};
  };
  ResponsesWriter whole = writer_to(keep);
  const json response = whole_of(whole, long_answer(), FinishReason::kToolCalls);
  ResponsesWriter streamed = writer_to(keep);
  stream_of(streamed, long_answer(), FinishReason::kToolCalls);
  ASSERT_EQ(kept.size(), 2u);
  for (const StoredResponse& stored : kept) {
    EXPECT_EQ(json::parse(stored.json), response);
    ASSERT_EQ(stored.messages.size(), 1u);
    EXPECT_EQ(stored.messages[0].role, "assistant");
    EXPECT_EQ(stored.messages[0].content, "abcd");
    EXPECT_EQ(stored.messages[0].reasoning, "hm");
    ASSERT_EQ(stored.messages[0].tool_calls.size(), 2u);
    EXPECT_EQ(stored.messages[0].tool_calls[1].id, "call_y");
    EXPECT_EQ(stored.messages[0].tool_calls[1].arguments, "{\"l\":2}");
    ASSERT_EQ(stored.items.size(), 6u);
    EXPECT_EQ(stored.items[2].first, "fc_x_7_2");
    EXPECT_EQ(json::parse(stored.items[2].second), response["output"][2]);
  }
  // A call that was cut would be refused by templates.
  std::vector<AnswerPiece> cut(1);
  cut[0].tool_calls = {{.index = 0, .id = "x", .name = "f", .arguments = "{\"k\""}};
  ResponsesWriter broken = writer_to(keep);
  EXPECT_EQ(whole_of(broken, cut, FinishReason::kLength)["output"][0]["status"], "incomplete");
  EXPECT_TRUE(kept.back().messages[0].tool_calls.empty());
}

}  // namespace
}  // namespace kakeya::openai
