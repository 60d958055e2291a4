// Random texts that forms allow. Reads a form a line, {"schema": ..., "close_objects": true,
// "tokens": 200}, outside strict mode, and writes a line for each:
//   {"texts": [...], "most": 120, "tokens": 205, "slowest_ms": 0.4, "notes": [...]}
// or {"refused": "..."}, or {"broken": "..."} where a promise does not hold. usage: form_walks SEED
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/token_mask.h"
#include "service/grammar/grammar_engine.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

constexpr TokenId kStop = 106;  // <turn|>
constexpr std::int64_t kVocabulary = 4096;
constexpr int kFewTokens = 60;     // behind which a text ends where it may
constexpr int kMostTokens = 2000;  // of a text that need not end

class FormWalks {
 public:
  explicit FormWalks(std::uint32_t seed)
      : tokenizer_(Tokenizer::load("models/demo/tokenizer.json").value()),
        engine_(GrammarEngine::create(tokenizer_, kVocabulary, std::vector<TokenId>{1, kStop, 50})
                    .value()),
        random_(seed) {
    for (TokenId id = 0; id < kVocabulary; ++id) {
      const std::string bytes = tokenizer_.token_bytes(id);
      closes_.push_back(bytes.find_first_of("\"}]") != std::string::npos);
    }
  }

  ordered_json walk(const ordered_json& form) {
    AnswerFormat format = {.kind = AnswerFormat::Kind::kJsonSchema, .text = form["schema"].dump()};
    format.schema = {.close_objects = form["close_objects"].get<bool>(), .strict = false};
    const auto compiled = engine_->compile(format);
    if (!compiled) return {{"refused", compiled.error().message()}};
    const auto lengths = text_lengths_of(format);
    if (!lengths) return {{"broken", "a form that compiles has no lengths"}};
    const auto wanted = form["tokens"].get<std::int64_t>();
    ordered_json report = {{"texts", ordered_json::array()},
                           {"most", lengths->most ? ordered_json(*lengths->most) : ordered_json()},
                           {"endless", lengths->endless},
                           {"notes", (*compiled)->notes()}};
    tokens_ = 0;
    slowest_ = 0.0;
    while (tokens_ < wanted) {
      const std::optional<std::string> text = text_of(**compiled, lengths->most.has_value());
      if (!problem_.empty()) return {{"broken", problem_}};
      if (text && !ordered_json::accept(*text)) return {{"broken", "cannot be read: " + *text}};
      if (text) report["texts"].push_back(*text);
    }
    report["tokens"] = tokens_;
    report["slowest_ms"] = 1e3 * slowest_;
    return report;
  }

 private:
  // A text by chance; nothing for one that was left before it ended.
  std::optional<std::string> text_of(const CompiledGrammar& grammar, bool ends) {
    const auto constraint = grammar.constrain({}, false);
    std::vector<std::uint32_t> mask(kVocabulary / 32);
    std::string text;
    for (int step = 0; ends || step < kMostTokens; ++step) {
      std::ranges::fill(mask, 0U);
      const ThreadTime watch;  // tests run beside this one
      const bool is_masked = constraint->fill_mask(mask);
      slowest_ = std::max(slowest_, watch.seconds());
      ++tokens_;
      if (!is_masked) return broken("everything is allowed", text);
      const bool may_end = is_allowed(mask, static_cast<std::size_t>(kStop));
      if (may_end && (step > kFewTokens || random_() % 4 == 0)) return text;
      const std::optional<TokenId> id = any_of(mask, step);
      if (!id && may_end) return text;
      if (!id) return broken("nothing is allowed", text);
      if (!constraint->advance(*id)) return broken("a token of the mask is refused", text);
      text += tokenizer_.token_bytes(*id);
    }
    return std::nullopt;
  }

  std::nullopt_t broken(const char* what, const std::string& text) {
    problem_ = what + (" behind " + text);
    return std::nullopt;
  }

  // A token of the mask, but for those that end the text; of those that close something, the more
  // the longer the text is.
  std::optional<TokenId> any_of(const std::vector<std::uint32_t>& mask, int step) {
    std::vector<TokenId> allowed;
    std::vector<TokenId> closing;
    for (std::size_t word = 0; word < mask.size(); ++word) {
      for (std::uint32_t left = mask[word]; left != 0; left &= left - 1) {
        const TokenId id = static_cast<TokenId>(word * 32) + std::countr_zero(left);
        if (id == kStop || id == 1 || id == 50) continue;
        allowed.push_back(id);
        if (closes_[static_cast<std::size_t>(id)]) closing.push_back(id);
      }
    }
    const bool closes = !closing.empty() && static_cast<int>(random_() % 100) < 10 + step;
    const std::vector<TokenId>& from = closes ? closing : allowed;
    if (from.empty()) return std::nullopt;
    return from[random_() % from.size()];
  }

  const Tokenizer tokenizer_;
  const std::unique_ptr<GrammarEngine> engine_;
  std::vector<bool> closes_;  // by token
  std::mt19937 random_;
  std::int64_t tokens_ = 0;
  double slowest_ = 0.0;
  std::string problem_;
};

}  // namespace
}  // namespace kakeya::service

int main(int argc, char** argv) {
  const auto seed = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 1);
  kakeya::service::FormWalks walks(seed);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << walks.walk(nlohmann::ordered_json::parse(line)).dump() << std::endl;
  }
}
