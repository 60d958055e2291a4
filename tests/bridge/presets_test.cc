// Presets of the program: what they take, and what they run.
#include "presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kakeya::bridge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Preset& preset(const std::string& name) {
  return *find_preset(known_presets(), name);
}

ServingPrograms programs() {
  return {.paths = {{"kakeya", "/bin/kakeya"}, {"mac_report", "/tools/mac_report"}},
          .models = {{"demo", "/models/demo"}, {"big", "/models/big one"}},
          .build = "/build"};
}

TEST(BridgePresets, BecomeArgumentVectors) {
  const Json given = {{"model", "big"}, {"limit", 2}, {"texts", "prose"}};
  const Values values = check_parameters(preset("perplexity"), given).value();
  EXPECT_THAT(
      command_of(preset("perplexity"), values, programs(), "/out").value(),
      ElementsAre("/bin/kakeya", "eval", "perplexity", "--json", "--model", "/models/big one",
                  "--backend", "cpu", "--texts", "prose", "--length", "512", "--limit", "2"));
  const Values plain = check_parameters(preset("mac-report"), Json::object()).value();
  EXPECT_THAT(command_of(preset("mac-report"), plain, programs(), "/out").value(),
              ElementsAre("/tools/mac_report", "--out", "/out", "--build", "/build", "--prompts",
                          "8", "--model", "/models/demo"));
}

// Every {NAME} is one of the preset's parameters, and every default is allowed.
TEST(BridgePresets, AreWhole) {
  std::set<std::string> names;
  for (const Preset& each : known_presets()) {
    names.insert(each.name);
    const Values values = check_parameters(each, Json::object()).value();
    const auto command = command_of(each, values, programs(), "/out");
    ASSERT_TRUE(command) << each.name;
    for (const std::string& word : *command) EXPECT_NE(word.front(), '{') << each.name;
    EXPECT_GT(each.seconds, 0.0);
    for (const auto& [name, value] : values) {
      EXPECT_TRUE(parse_parameters(each, {name + "=" + value})) << each.name << " " << name;
    }
  }
  EXPECT_THAT(names,
              ElementsAre("code", "doctor", "drafter-parity", "mac-report", "niah", "perplexity"));
}

TEST(BridgePresets, RefuseWhatIsOutOfBounds) {
  const auto problem = [](const std::string& word) {
    const auto parsed = parse_parameters(preset("niah"), {word});
    return parsed ? std::string() : parsed.error().message();
  };
  EXPECT_EQ(problem("samples=50"), "");
  EXPECT_THAT(problem("samples=51"),
              HasSubstr("samples: expected a whole number of 1 to 50, got 51"));
  EXPECT_THAT(problem("samples=0"), HasSubstr("of 1 to 50, got 0"));
  EXPECT_THAT(problem("samples=2;id"), HasSubstr("got \"2;id\""));
  EXPECT_THAT(problem("samples=99999999999999999999"), HasSubstr("of 1 to 50"));
  EXPECT_THAT(problem("backend=cpu --memory 1"), HasSubstr("backend: expected one of cpu, mlx"));
  EXPECT_THAT(problem("model=../x"), HasSubstr("model: expected a name"));
  EXPECT_THAT(problem("out=/tmp"), HasSubstr("niah has no parameter 'out'; it has model"));
  EXPECT_THAT(problem("samples"), HasSubstr("expected NAME=VALUE, got 'samples'"));
  EXPECT_FALSE(parse_parameters(preset("niah"), {"hops=1", "hops=2"}));
  const Json huge = {{"samples", 18446744073709551615U}};
  EXPECT_FALSE(check_parameters(preset("niah"), huge));
}

}  // namespace
}  // namespace kakeya::bridge
