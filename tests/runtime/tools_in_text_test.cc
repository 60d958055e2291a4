// Tools with chat templates that show none: they are written into the conversation, and never left
// out silently.
#include "runtime/tools_in_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "runtime/model_text.h"

namespace kakeya::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Templates in the manner of SmolLM2's, Gemma 3's and an old Mistral's.
constexpr const char* kBlind =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr const char* kAlternating =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}"
    "{% endfor %}";
constexpr const char* kSeeing =
    "{{ tools }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.tool_calls }}{% endfor %}";

constexpr const char* kTool =
    R"({"type":"function","function":{"name":"get_time","parameters":{"type":"object"}}})";

Result<ChatPrompt> rendered(const char* chat_template,
                            std::span<const ChatMessage> messages,
                            const std::vector<std::string>& tools) {
  const ScratchFolder folder;
  folder.write("chat_template.jinja", chat_template);
  return ModelText::load(folder.root())
      .value()
      .apply_chat_template(messages, {.add_generation_prompt = false, .tools = tools});
}

const std::vector<ChatMessage> kQuestion = {{.role = "system", .content = "Be brief."},
                                            {.role = "user", .content = "What time is it?"}};

TEST(ToolsInText, StandBehindTheSystemMessage) {
  const auto prompt = rendered(kBlind, kQuestion, {kTool});
  ASSERT_OK(prompt);
  EXPECT_TRUE(prompt->text.starts_with("[system]Be brief.\n\nYou may call functions"));
  EXPECT_THAT(prompt->text, AllOf(HasSubstr(kTool), HasSubstr("\n<tool_call>\n{\"name\":")));
  EXPECT_TRUE(prompt->text.ends_with("</tool_call>[user]What time is it?"));
  const auto alone = rendered(kBlind, std::span(kQuestion).subspan(1), {kTool});
  ASSERT_OK(alone);
  EXPECT_TRUE(alone->text.starts_with("[system]You may call functions"));
  EXPECT_EQ(rendered(kBlind, kQuestion, {})->text, "[system]Be brief.[user]What time is it?");
}

TEST(ToolsInText, StandInFrontOfTheUserWhereThereIsNoSystemMessage) {
  const auto prompt = rendered(kAlternating, std::span(kQuestion).subspan(1), {kTool});
  ASSERT_OK(prompt);
  EXPECT_TRUE(prompt->text.starts_with("[user]You may call functions"));
  EXPECT_TRUE(prompt->text.ends_with("\n\nWhat time is it?"));
}

// Two calls of one turn and their results, which are one message, so that roles alternate.
TEST(ToolsInText, CallsAndResultsAreText) {
  std::vector<ChatMessage> messages(kQuestion.begin() + 1, kQuestion.end());
  messages.push_back({.role = "assistant",
                      .content = "Wait.",
                      .tool_calls = {{.name = "get_time", .arguments = R"({"zone": "UTC"})"},
                                     {.name = "get_time"}}});
  messages.push_back({.role = "tool", .content = "12:00"});
  messages.push_back({.role = "tool", .content = "13:00"});
  messages.push_back({.role = "assistant", .content = "Noon."});
  for (const std::vector<std::string>& tools : {std::vector<std::string>{kTool}, {}}) {
    const auto prompt = rendered(kAlternating, messages, tools);
    ASSERT_OK(prompt);
    EXPECT_THAT(prompt->text,
                HasSubstr("[assistant]Wait.\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": "
                          "{\"zone\": \"UTC\"}}\n</tool_call>\n<tool_call>\n{\"name\": "
                          "\"get_time\", \"arguments\": {}}\n</tool_call>[user]<tool_response>\n"
                          "12:00\n</tool_response>\n<tool_response>\n13:00\n</tool_response>"
                          "[assistant]Noon."));
  }
}

TEST(ToolsInText, ATemplateThatShowsToolsIsLeftAlone) {
  const auto prompt = rendered(kSeeing, kQuestion, {kTool});
  ASSERT_OK(prompt);
  EXPECT_THAT(prompt->text, AllOf(HasSubstr("get_time"), Not(HasSubstr("You may call"))));
}

TEST(ToolsInText, WhatIsNoToolIsRefusedAsEver) {
  const auto refused = rendered(kBlind, kQuestion, {"[1]"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("tools[0]: expected a JSON object"));
  const std::vector<ChatMessage> odd = {
      {.role = "user", .content = "a"},
      {.role = "assistant", .content = "", .tool_calls = {{.name = "\xFF"}}}};
  EXPECT_TRUE(rendered(kBlind, odd, {}).has_value());
}

}  // namespace
}  // namespace kakeya::test
