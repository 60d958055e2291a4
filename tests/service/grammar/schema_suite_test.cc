// The official suite of JSON Schema: what it calls invalid never comes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "service/grammar/grammar_test.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

struct Counts {
  int right_accepts = 0;
  int wrong_accepts = 0;
  int right_rejects = 0;
  int wrong_rejects = 0;
  int refused = 0;
};

void count_group(const ordered_json& group, Counts& counts) {
  AnswerFormat format = format_of(AnswerFormat::Kind::kJsonSchema, group[1].dump());
  format.schema.close_objects = false;
  const auto compiled = demo_grammars().engine->compile(format);
  const ordered_json& tests = group[2];
  if (!compiled) {
    counts.refused += static_cast<int>(tests.size());
    EXPECT_EQ(compiled.error().code(), StatusCode::kInvalidArgument);
    return;
  }
  for (const ordered_json& test : tests) {
    const bool accepted = demo_grammars().accepts(**compiled, test[0].get<std::string>());
    const bool valid = test[1] == 1;
    if (accepted) ++(valid ? counts.right_accepts : counts.wrong_accepts);
    if (!accepted) ++(valid ? counts.wrong_rejects : counts.right_rejects);
    EXPECT_TRUE(valid || !accepted) << group[0] << " " << group[1] << " lets through " << test[0];
  }
}

Counts count_suite(const std::string& draft) {
  std::ifstream file(KAKEYA_TEST_DATA "/json_schema_suite/" + draft + ".json");
  Counts counts;
  for (const ordered_json& group : ordered_json::parse(file)) count_group(group, counts);
  std::printf("%s: %d right and %d wrong accepts, %d right and %d wrong rejects, %d refused\n",
              draft.c_str(), counts.right_accepts, counts.wrong_accepts, counts.right_rejects,
              counts.wrong_rejects, counts.refused);
  return counts;
}

using SchemaSuite = GrammarTest;

// As many as the prototype of the converter accepted.
TEST_F(SchemaSuite, NothingInvalidIsAcceptedInDraft2020) {
  const Counts counts = count_suite("draft2020-12");
  EXPECT_EQ(counts.wrong_accepts, 0);
  EXPECT_GE(counts.right_accepts, 271);
}

TEST_F(SchemaSuite, NothingInvalidIsAcceptedInDraft7) {
  const Counts counts = count_suite("draft7");
  EXPECT_EQ(counts.wrong_accepts, 0);
  EXPECT_GE(counts.right_accepts, 209);
}

}  // namespace
}  // namespace kakeya::service
