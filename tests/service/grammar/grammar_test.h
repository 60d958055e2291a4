// Shared by tests of grammars: the demo model's vocabulary and answers as tokens.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/tokenizer.h"
#include "service/grammar/grammar_engine.h"

namespace kakeya::service {

// The demo's vocabulary, and an engine for it.
struct DemoGrammars {
  static constexpr TokenId kStop = 106;  // <turn|>
  static constexpr std::int64_t kVocabulary = 4096;

  DemoGrammars()
      : tokenizer(Tokenizer::load(KAKEYA_DEMO_MODEL "/tokenizer.json").value()),
        engine(GrammarEngine::create(tokenizer, kVocabulary, std::vector<TokenId>{1, kStop, 50})
                   .value()) {}

  Tokenizer tokenizer;
  std::unique_ptr<GrammarEngine> engine;

  // True if an answer of this text may come, and end.
  bool accepts(const CompiledGrammar& grammar, std::string_view text) const {
    return accepts(grammar, tokenizer.encode(text, {.parse_special = false}).value());
  }
  bool accepts(const CompiledGrammar& grammar, const std::vector<TokenId>& ids) const {
    const auto constraint = grammar.constrain({}, false);
    for (const TokenId id : ids) {
      if (!constraint->advance(id)) return false;
    }
    return constraint->advance(kStop);
  }
};

inline DemoGrammars& demo_grammars() {
  static DemoGrammars grammars;
  return grammars;
}

inline AnswerFormat format_of(AnswerFormat::Kind kind, std::string_view text) {
  return {.kind = kind, .text = std::string(text)};
}

// Skips tests of what a build without xgrammar has not.
class GrammarTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_grammars()) GTEST_SKIP() << "built without xgrammar";
  }
};

}  // namespace kakeya::service
