// Members of objects: which may be left out, in what order the others come.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "service/grammar/grammar_test.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

constexpr unsigned kMembers = 5;

// An object of the members whose bits are set.
std::string object_text(unsigned members) {
  ordered_json object = ordered_json::object();
  for (unsigned i = 0; i < kMembers; ++i) {
    if ((members >> i & 1U) != 0) object[fmt::format("m{}", i)] = true;
  }
  return object.dump();
}

std::string object_schema(unsigned required, bool is_open) {
  ordered_json schema = {{"type", "object"}, {"required", ordered_json::array()}};
  for (unsigned i = 0; i < kMembers; ++i) {
    const std::string name = fmt::format("m{}", i);
    schema["properties"][name] = {{"type", "boolean"}};
    if ((required >> i & 1U) != 0) schema["required"].push_back(name);
  }
  if (is_open) schema["additionalProperties"] = {{"type", "null"}};
  return schema.dump();
}

class ObjectMembers : public GrammarTest {
 protected:
  static std::shared_ptr<const CompiledGrammar> compile(const std::string& schema) {
    return demo_grammars()
        .engine->compile(format_of(AnswerFormat::Kind::kJsonSchema, schema))
        .value();
  }
};

TEST_F(ObjectMembers, AreLeftOutWhereTheyMayBe) {
  for (unsigned required = 0; required < 1U << kMembers; ++required) {
    for (const bool is_open : {false, true}) {
      const auto compiled = compile(object_schema(required, is_open));
      for (unsigned members = 0; members < 1U << kMembers; ++members) {
        const bool is_whole = (members & required) == required;
        const std::string text = object_text(members);
        EXPECT_EQ(demo_grammars().accepts(*compiled, text), is_whole) << required << " " << text;
        std::string with_other = text;
        with_other.insert(text.size() - 1, members == 0 ? R"("o":null)" : R"(,"o":null)");
        EXPECT_EQ(demo_grammars().accepts(*compiled, with_other), is_whole && is_open)
            << required << " " << with_other;
      }
      EXPECT_FALSE(demo_grammars().accepts(*compiled, R"({"m1":true,"m0":true})"));
    }
  }
}

// Time grew with the third power once: 64 times as much for 4 times the members.
TEST_F(ObjectMembers, TakeTimeAsTheirNumber) {
  const auto seconds = [](int count) {
    ordered_json schema = {{"type", "object"}};
    for (int i = 0; i < count; ++i)
      schema["properties"][fmt::format("p{}", i)] = {{"type", "null"}};
    const std::clock_t begin = std::clock();  // of the process, whatever else runs
    compile(schema.dump());
    return static_cast<double>(std::clock() - begin);
  };
  seconds(10);
  const double of_some = seconds(150);
  EXPECT_LT(seconds(600), 24 * of_some);
}

}  // namespace
}  // namespace kakeya::service
