// Tools that an answer may call, of those that a request has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wire/openai/completion_read.h"

namespace kakeya::openai {
namespace {

std::string chat_of_tools(const std::string& field) {
  return R"({"messages":[{"role":"user","content":"a"}],)" + field + "}";
}

TEST(ToolsRead, ShowsThoseThatMayBeCalled) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],)";
  const auto choice = [&](const char* mode, const char* name) {
    return read_chat_request(chat_of_tools(
        tools +
        fmt::format(R"("tool_choice":{{"type":"allowed_tools","allowed_tools":{{"mode":"{}",)"
                    R"("tools":[{{"type":"function","function":{{"name":"{}"}}}}]}}}})",
                    mode, name)));
  };
  const auto shown = choice("required", "g");
  ASSERT_TRUE(shown) << shown.error().message;
  EXPECT_EQ(shown->chat.tools,
            std::vector<std::string>{R"({"type":"function","function":{"name":"g"}})"});
  EXPECT_EQ(shown->tool_choice, service::ToolChoice::kRequired);
  EXPECT_EQ(choice("auto", "f")->tool_choice, service::ToolChoice::kAuto);
  EXPECT_EQ(choice("auto", "h").error().parameter, "tool_choice");
}

}  // namespace
}  // namespace kakeya::openai
