// Schemas that generators write for the types that people use: tests/data/json_schemas, of pydantic
// and msgspec as they wrote them, and of Zod, schemars, typebox, C# and Go by their documents. All
// compile outside strict mode, and whatever a walk along one comes to can be read.
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/token_mask.h"
#include "service/grammar/grammar_test.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;
using SchemaCorpus = GrammarTest;

std::vector<std::pair<std::string, std::string>> schemas() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const char* file : {"python.json", "others.json"}) {
    std::ifstream in(std::string(KAKEYA_TEST_DATA "/json_schemas/") + file);
    const ordered_json listed = ordered_json::parse(in);
    for (const ordered_json& one : listed) all.emplace_back(one[0], one[1].dump());
  }
  return all;
}

AnswerFormat lax(const std::string& schema) {
  AnswerFormat format = format_of(AnswerFormat::Kind::kJsonSchema, schema);
  format.schema.strict = false;
  return format;
}

// A text by chance, which ends where it may; nothing if it has not ended after so many tokens.
std::optional<std::string> walk(const CompiledGrammar& grammar, std::mt19937& random) {
  constexpr int kMostTokens = 400;
  const auto constraint = grammar.constrain({}, false);
  std::vector<std::uint32_t> mask(DemoGrammars::kVocabulary / 32);
  std::string text;
  for (int step = 0; step < kMostTokens; ++step) {
    std::ranges::fill(mask, 0U);
    if (!constraint->fill_mask(mask)) ADD_FAILURE() << "everything is allowed behind " << text;
    if (is_allowed(mask, static_cast<std::size_t>(DemoGrammars::kStop))) return text;
    std::vector<TokenId> allowed;
    for (std::size_t word = 0; word < mask.size(); ++word) {
      for (std::uint32_t left = mask[word]; left != 0; left &= left - 1) {
        allowed.push_back(static_cast<TokenId>(word * 32) + std::countr_zero(left));
      }
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing is allowed behind " << text;
      return std::nullopt;
    }
    // Now and then what closes something, or nothing would end soon.
    std::vector<TokenId> closing;
    for (const TokenId id : allowed) {
      const std::string bytes = demo_grammars().tokenizer.token_bytes(id);
      if (bytes.find_first_of("\"}]") != std::string::npos) closing.push_back(id);
    }
    const auto& from = !closing.empty() && random() % 2 == 0 ? closing : allowed;
    const TokenId id = from[random() % from.size()];
    if (!constraint->advance(id)) ADD_FAILURE() << "a token of the mask is refused";
    text += demo_grammars().tokenizer.token_bytes(id);
  }
  return std::nullopt;
}

TEST_F(SchemaCorpus, AllCompileAndTheirTextsCanBeRead) {
  std::mt19937 random(6);
  int whole = 0;
  int ended = 0;
  const auto all = schemas();
  for (const auto& [name, schema] : all) {
    const auto compiled = demo_grammars().engine->compile(lax(schema));
    if (!compiled) {
      ADD_FAILURE() << name << ": " << compiled.error().message();
      continue;
    }
    Effort effort;
    const bool is_strict = read_schema(schema, {.strict = true}, effort).has_value();
    EXPECT_EQ(is_strict, (*compiled)->notes().empty()) << name;
    if (is_strict) ++whole;
    for (int i = 0; i < 2; ++i) {
      const auto text = walk(**compiled, random);
      if (!text) continue;
      ++ended;
      EXPECT_TRUE(ordered_json::accept(*text)) << name << ": " << *text;
    }
  }
  std::printf("%zu schemas: %d wholly enforced; %d of %zu walks ended\n", all.size(), whole, ended,
              2 * all.size());
  EXPECT_GE(all.size(), 200U);
  EXPECT_GT(ended, static_cast<int>(all.size()));
}

}  // namespace
}  // namespace kakeya::service
