// Items of a stored response's request, of every kind of message.
#include "wire/openai/input_items.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kakeya::openai {
namespace {

using nlohmann::json;

TEST(InputItems, AreOfEveryKind) {
  const StoredResponse response = {
      .json = "{}",
      .messages = {{.role = "user", .content = "before"},
                   {.role = "user", .content = "2 + 2?"},
                   {.role = "assistant",
                    .content = "I ask.",
                    .tool_calls = {{.name = "sum", .arguments = "{\"a\":2}", .id = "call_1"}},
                    .reasoning = "so"},
                   {.role = "tool", .content = "4", .tool_call_id = "call_1", .name = "sum"},
                   {.role = "assistant", .content = "the answer, which is no input"}},
      .first_input = 1};
  const auto text = input_items_json("resp_7", response, "order=asc");
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const json list = json::parse(*text);
  const json& data = list["data"];
  ASSERT_EQ(data.size(), 5U);
  EXPECT_EQ(data[0]["content"][0]["text"], "2 + 2?");
  EXPECT_EQ(data[1]["type"], "reasoning");
  EXPECT_EQ(data[1]["content"][0]["text"], "so");
  EXPECT_EQ(data[2]["content"][0],
            (json{{"type", "output_text"}, {"text", "I ask."}, {"annotations", json::array()}}));
  EXPECT_EQ(data[3]["name"], "sum");
  EXPECT_EQ(data[3]["arguments"], "{\"a\":2}");
  EXPECT_EQ(data[3]["call_id"], "call_1");
  EXPECT_EQ(data[4]["type"], "function_call_output");
  EXPECT_EQ(data[4]["call_id"], "call_1");
  EXPECT_EQ(data[4]["output"], "4");
  EXPECT_EQ(list["first_id"], "msg_7_0");
  EXPECT_EQ(list["last_id"], "fco_7_4");
  // A second time the ids are the same, in the other order.
  const json other = json::parse(*input_items_json("resp_7", response, ""));
  EXPECT_EQ(other["data"][0], data[4]);
  EXPECT_EQ(json::parse(*input_items_json("resp_7", response, "after=msg_7_0"))["data"],
            json::array());
}

}  // namespace
}  // namespace kakeya::openai
