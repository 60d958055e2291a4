#include "service/grammar/grammar_engine.h"

#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <exception>
#include <list>
#include <mutex>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "service/grammar/grammar_constraint.h"

namespace kakeya::service {
namespace {

// Texts for tokens that are no text: no grammar of characters has bytes of 0xFF.
std::string hidden_text(const Tokenizer& tokenizer, TokenId id) {
  const auto name = tokenizer.token_text(id);
  return "\xFF" + std::string(name.value_or(""));
}

std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::int64_t vocab_size) {
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(vocab_size));
  for (TokenId id = 0; id < vocab_size; ++id) {
    std::string text = tokenizer.is_special(id) ? "" : tokenizer.token_bytes(id);
    texts.push_back(text.empty() ? hidden_text(tokenizer, id) : std::move(text));
  }
  return texts;
}

double thread_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class Compiled final : public CompiledGrammar {
 public:
  Compiled(xgrammar::CompiledGrammar grammar, std::int64_t vocab_size)
      : grammar_(std::move(grammar)), vocab_size_(vocab_size) {}

  std::unique_ptr<Constraint> constrain(const std::optional<ThoughtMarkers>& markers,
                                        bool in_thought) const override {
    return std::make_unique<GrammarConstraint>(grammar_, markers, in_thought, vocab_size_);
  }
  std::size_t bytes() const override { return grammar_.MemorySizeBytes(); }

 private:
  const xgrammar::CompiledGrammar grammar_;
  const std::int64_t vocab_size_;
};

// An id that the mask allows, by chance; nothing if there is none.
std::optional<TokenId> any_allowed(std::span<const std::uint32_t> mask, std::mt19937& random) {
  const std::size_t begin = random() % mask.size();
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::size_t word = (begin + i) % mask.size();
    if (mask[word] == 0) continue;
    return static_cast<TokenId>(word * 32) + std::countr_zero(mask[word]);
  }
  return {};
}

class XgrammarEngine final : public GrammarEngine {
 public:
  XgrammarEngine(const Tokenizer& tokenizer, std::int64_t vocab_size, std::vector<int> stop_ids)
      : vocab_size_(vocab_size),
        // Compilers that keep what they compiled give masks of other grammars now and then.
        compiler_(xgrammar::TokenizerInfo(token_texts(tokenizer, vocab_size),
                                          xgrammar::VocabType::RAW,
                                          static_cast<int>(vocab_size),
                                          std::move(stop_ids)),
                  1,
                  false) {}

  Result<std::shared_ptr<const CompiledGrammar>> compile(const AnswerFormat& format,
                                                         const CallRules* calls) override {
    const std::string key = key_of(format, calls);
    if (auto kept = find(key)) return kept;
    const std::lock_guard lock(compiling_);
    if (auto kept = find(key)) return kept;  // made for somebody else meanwhile
    KAKEYA_ASSIGN_OR_RETURN(const std::string text, grammar_of(format, calls));
    try {
      auto compiled = std::make_shared<const Compiled>(compiler_.CompileGrammar(text), vocab_size_);
      KAKEYA_TRY(try_out(*compiled, is_written_by_users(format)));
      keep(key, compiled);
      return std::shared_ptr<const CompiledGrammar>(std::move(compiled));
    } catch (const std::exception&) {
      // Its own words name its sources.
      return error(StatusCode::kInvalidArgument, "grammar: the engine cannot compile it");
    }
  }

 private:
  struct Kept {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
  };

  static bool is_written_by_users(const AnswerFormat& format) {
    return format.kind == AnswerFormat::Kind::kGrammar || format.kind == AnswerFormat::Kind::kRegex;
  }

  // All that a grammar is made of.
  static std::string key_of(const AnswerFormat& format, const CallRules* calls) {
    std::string key;
    const auto add = [&key](std::string_view text) {
      key += fmt::format("{} {}\n", text.size(), text);
    };
    add(fmt::format("{} {}", static_cast<int>(format.kind), format.schema.close_objects));
    add(format.text);
    for (const std::string& choice : format.choices) add(choice);
    if (calls == nullptr) return key;
    add(fmt::format("calls {} {} {}", static_cast<int>(calls->format), calls->required,
                    calls->several));
    add(calls->only);
    for (const std::string& tool : calls->tools) add(tool);
    return key;
  }

  // Takes a walk along what a grammar allows: one whose masks take long would hold up everybody.
  Status try_out(const CompiledGrammar& grammar, bool whole_walk) const {
    constexpr int kSteps = 64;
    constexpr double kMostSeconds = 0.02;
    const auto constraint = grammar.constrain({}, false);
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(vocab_size_ + 31) / 32);
    std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same walk each time
    for (int step = 0; step < (whole_walk ? kSteps : 1); ++step) {
      std::ranges::fill(mask, 0);
      const double begin = thread_seconds();
      const bool masked = constraint->fill_mask(mask);
      if (whole_walk && thread_seconds() - begin > kMostSeconds) {
        return error(StatusCode::kInvalidArgument,
                     "grammar: expected masks of at most {} ms, got one that takes longer: repeat "
                     "by rules that end in themselves, without choices in ( )*",
                     static_cast<int>(kMostSeconds * 1e3));
      }
      if (!masked) std::ranges::fill(mask, ~std::uint32_t{0});
      const auto id = any_allowed(mask, random);
      if (!id) return error(StatusCode::kInvalidArgument, "grammar: it allows no token to begin");
      if (!masked || !constraint->advance(*id)) return {};
    }
    return {};
  }

  std::shared_ptr<const CompiledGrammar> find(const std::string& key) {
    const std::lock_guard lock(keeping_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found->second);
    return kept_.front().grammar;
  }

  void keep(const std::string& key, std::shared_ptr<const CompiledGrammar> grammar) {
    const std::lock_guard lock(keeping_);
    bytes_ += grammar->bytes() + 2 * key.size();
    kept_.push_front({.key = key, .grammar = std::move(grammar)});
    by_key_[key] = kept_.begin();
    while (bytes_ > kMostKeptBytes) {
      const Kept& last = kept_.back();
      bytes_ -= last.grammar->bytes() + 2 * last.key.size();
      by_key_.erase(last.key);
      kept_.pop_back();
    }
  }

  const std::int64_t vocab_size_;
  std::mutex compiling_;
  xgrammar::GrammarCompiler compiler_;
  std::mutex keeping_;    // of what is below; held for moments, so that nobody waits for a compiler
  std::list<Kept> kept_;  // the one used last in front
  std::unordered_map<std::string, std::list<Kept>::iterator> by_key_;
  std::size_t bytes_ = 0;
};

}  // namespace

bool has_grammars() {
  return true;
}

Result<std::unique_ptr<GrammarEngine>> GrammarEngine::create(const Tokenizer& tokenizer,
                                                             std::int64_t vocab_size,
                                                             std::span<const TokenId> stop_ids) {
  if (stop_ids.empty()) {
    return error(StatusCode::kUnimplemented,
                 "answers of a form need a model with a stop id, this one names none");
  }
  try {
    return std::make_unique<XgrammarEngine>(tokenizer, vocab_size,
                                            std::vector<int>(stop_ids.begin(), stop_ids.end()));
  } catch (const std::exception&) {
    return error(StatusCode::kUnimplemented, "grammars: this vocabulary is not supported");
  }
}

}  // namespace kakeya::service
