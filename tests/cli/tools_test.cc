// Tools of kakeya run: calls are printed apart from the text, and held to what is asked for.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

TEST_F(Cli, CallsToolsThatAFileHas) {
  std::ofstream(folder_ + "/tools") << R"([{"name":"weather","parameters":{"type":"object",
      "required":["days"],"properties":{"days":{"enum":[2,3]}}}},
      {"type":"function","function":{"name":"clock"}}])";
  const std::string base = "run " + kDemoFlag + "--tools " + folder_ + "/tools --prompt 'Hello.' ";
  const Outcome named = kakeya(base + "--tool-choice weather");
  if (named.err.find("without xgrammar") != std::string::npos) GTEST_SKIP();
  const auto call = nlohmann::json::parse(named.out.substr(0, named.out.find('\n')));
  EXPECT_EQ(call["name"], "weather");
  const int days = nlohmann::json::parse(call["arguments"].get<std::string>())["days"];
  EXPECT_TRUE(days == 2 || days == 3) << days;
  const auto json = nlohmann::json::parse(kakeya(base + "--tool-choice required --json").out);
  EXPECT_EQ(json["text"], "");
  EXPECT_FALSE(json["tool_calls"].empty()) << json;
  const auto none = nlohmann::json::parse(kakeya(base + "--json").out);
  EXPECT_FALSE(none.contains("tool_calls")) << none;
}

}  // namespace
}  // namespace kakeya::test
