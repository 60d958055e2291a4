// Events of a response's stream, checked and added up as clients do.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kakeya::test {

// The data of each event; its name says its type, and events are counted.
inline std::vector<nlohmann::json> response_events(const std::string& stream) {
  std::vector<nlohmann::json> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t line = stream.find('\n', at);
    const std::size_t end = stream.find("\n\n", at);
    if (stream.compare(at, 7, "event: ") == 0) {
      const std::size_t data = line + 1 + std::string_view("data: ").size();
      events.push_back(nlohmann::json::parse(stream.substr(data, end - data)));
      EXPECT_EQ(events.back()["type"], stream.substr(at + 7, line - at - 7));
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    }
    at = end + 2;
  }
  return events;
}

// The response that the deltas add up to, as the last event has it; each part is checked where it
// ends.
inline nlohmann::json added_up(const std::vector<nlohmann::json>& events) {
  using nlohmann::json;
  json output = json::array();
  std::string text;
  for (const json& event : events) {
    const std::string type = event["type"];
    if (event.contains("output_index") && type != "response.output_item.added") {
      EXPECT_EQ(event["output_index"], output.size() - 1) << event;
      EXPECT_EQ(event.value("item_id", output.back()["id"]), output.back()["id"]) << event;
    }
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], output.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      output.push_back(event["item"]);
      text.clear();
    } else if (type == "response.content_part.added") {
      EXPECT_EQ(event["part"]["text"], "");
      output.back()["content"].push_back(event["part"]);
    } else if (type.ends_with(".delta")) {
      text += event["delta"].get<std::string>();
      for (const json& entry : event.value("logprobs", json::array())) {
        output.back()["content"][0]["logprobs"].push_back(entry);
      }
    } else if (type.ends_with("_text.done")) {
      EXPECT_EQ(event["text"], text);
      output.back()["content"][0]["text"] = text;
      // The end may add those of tokens without a text.
      if (event.contains("logprobs")) {
        json& logprobs = output.back()["content"][0]["logprobs"];
        for (std::size_t i = 0; i < logprobs.size(); ++i) {
          EXPECT_EQ(event["logprobs"][i], logprobs[i]);
        }
        logprobs = event["logprobs"];
      }
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], text);
      output.back()["arguments"] = text;
    } else if (type == "response.custom_tool_call_input.done") {
      EXPECT_EQ(event["input"], text);
      output.back()["input"] = text;
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(event["part"], output.back()["content"][0]);
    } else if (type == "response.output_item.done") {
      output.back()["status"] = event["item"]["status"];
      EXPECT_EQ(event["item"], output.back());
    }
  }
  EXPECT_GE(events.size(), 3u);
  EXPECT_EQ(events[0]["type"], "response.created");
  EXPECT_EQ(events[1]["type"], "response.in_progress");
  const json& ended = events.back();
  EXPECT_EQ(ended["type"], "response." + ended["response"]["status"].get<std::string>());
  EXPECT_EQ(ended["response"]["output"], output);
  return ended["response"];
}

}  // namespace kakeya::test
