#include "service/grammar/grammar_engine.h"

#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include <exception>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "service/grammar/compile_queue.h"
#include "service/grammar/grammar_constraint.h"
#include "service/grammar/mask_trial.h"

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

// Bytes of what the engine has of a vocabulary: texts as they are and sorted, and a tree of them.
std::uint64_t vocabulary_bytes(const Tokenizer& tokenizer, std::int64_t vocab_size) {
  std::uint64_t bytes = 0;
  for (TokenId id = 0; id < vocab_size; ++id) {
    const std::size_t length = tokenizer.token_bytes(id).size();
    bytes += 2 * (sizeof(std::string) + (length < sizeof(std::string) / 2 ? 0 : length)) + 16;
  }
  return bytes;
}

class Compiled final : public CompiledGrammar {
 public:
  Compiled(xgrammar::CompiledGrammar grammar,
           std::int64_t vocab_size,
           std::shared_ptr<BackgroundWorker> worker,
           const Tokenizer& tokenizer,
           std::vector<std::string> notes,
           std::unique_ptr<MemoryCharge> charge)
      : charge_(std::move(charge)),
        grammar_(std::move(grammar)),
        vocab_size_(vocab_size),
        worker_(std::move(worker)),
        tokenizer_(tokenizer),
        notes_(std::move(notes)) {}

  std::unique_ptr<Constraint> constrain(const std::optional<ThoughtMarkers>& markers,
                                        bool in_thought) const override {
    return std::make_unique<GrammarConstraint>(grammar_, markers, in_thought, vocab_size_, worker_,
                                               &tokenizer_);
  }
  std::size_t bytes() const override { return grammar_.MemorySizeBytes(); }
  const std::vector<std::string>& notes() const override { return notes_; }

 private:
  const std::unique_ptr<MemoryCharge> charge_;  // null: there is no limit
  const xgrammar::CompiledGrammar grammar_;
  const std::int64_t vocab_size_;
  const std::shared_ptr<BackgroundWorker> worker_;
  const Tokenizer& tokenizer_;
  const std::vector<std::string> notes_;
};

class XgrammarEngine final : public GrammarEngine {
 public:
  XgrammarEngine(const Tokenizer& tokenizer,
                 std::int64_t vocab_size,
                 std::vector<int> stop_ids,
                 GrammarMemory memory,
                 std::unique_ptr<MemoryCharge> charge)
      : memory_(std::move(memory)),
        charge_(std::move(charge)),
        tokenizer_(tokenizer),
        vocab_size_(vocab_size),
        // Compilers that keep what they compiled give masks of other grammars now and then.
        compiler_(xgrammar::TokenizerInfo(token_texts(tokenizer, vocab_size),
                                          xgrammar::VocabType::RAW,
                                          static_cast<int>(vocab_size),
                                          std::move(stop_ids)),
                  1,
                  false) {}

  Result<std::shared_ptr<const CompiledGrammar>> compile(const AnswerFormat& format,
                                                         const CallRules* calls,
                                                         const CompileTerms& terms) override {
    const std::string key = key_of(format, calls);
    if (auto kept = find(key)) return kept;
    KAKEYA_ASSIGN_OR_RETURN(GrammarText grammar, grammar_of(format, calls));
    const bool is_small = grammar.text.size() <= kMostSmallBytes;
    return queue_.run(key, is_small, terms, [this, key, grammar = std::move(grammar)] {
      return compile_text(key, grammar);
    });
  }

  void stop() override { queue_.stop(); }
  bool is_compiling() const override { return queue_.is_busy(); }

 private:
  struct Kept {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
  };

  static constexpr std::size_t kMostSmallBytes = 16'384;

  Result<std::shared_ptr<const CompiledGrammar>> compile_text(const std::string& key,
                                                              const GrammarText& text) {
    if (auto kept = find(key)) return kept;  // made for somebody else meanwhile
    try {
      const xgrammar::CompiledGrammar grammar = compiler_.CompileGrammar(text.text);
      const auto constrain = [&] {
        return std::make_unique<GrammarConstraint>(grammar, std::nullopt, false, vocab_size_,
                                                   nullptr, nullptr);
      };
      KAKEYA_ASSIGN_OR_RETURN(auto charge, charge_for(grammar.MemorySizeBytes() + 2 * key.size()));
      KAKEYA_TRY(try_masks(constrain, vocab_size_));
      auto compiled = std::make_shared<const Compiled>(grammar, vocab_size_, worker_, tokenizer_,
                                                       text.notes, std::move(charge));
      keep(key, compiled);
      return std::shared_ptr<const CompiledGrammar>(std::move(compiled));
    } catch (const std::exception&) {
      // Its own words name its sources.
      return error(StatusCode::kInvalidArgument, "grammar: the engine cannot compile it");
    }
  }

  // All that a grammar is made of.
  static std::string key_of(const AnswerFormat& format, const CallRules* calls) {
    std::string key;
    const auto add = [&key](std::string_view text) {
      key += fmt::format("{} {}\n", text.size(), text);
    };
    add(fmt::format("{} {} {}", static_cast<int>(format.kind), format.schema.close_objects,
                    format.schema.strict));
    add(format.text);
    for (const std::string& choice : format.choices) add(choice);
    if (calls == nullptr) return key;
    add(fmt::format("calls {} {} {}", static_cast<int>(calls->format), calls->required,
                    calls->several));
    add(calls->only);
    for (const std::string& tool : calls->tools) add(tool);
    return key;
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
    while (bytes_ > memory_.most_kept) drop_oldest();
  }

  // Under keeping_.
  void drop_oldest() {
    const Kept& last = kept_.back();
    bytes_ -= last.grammar->bytes() + 2 * last.key.size();
    by_key_.erase(last.key);
    kept_.pop_back();
  }

  // Kept grammars make room.
  Result<std::unique_ptr<MemoryCharge>> charge_for(std::uint64_t bytes) {
    if (!memory_.charge) return nullptr;
    for (;;) {
      auto charge = memory_.charge(bytes);
      if (charge) return charge;
      const std::lock_guard lock(keeping_);
      if (kept_.empty()) return charge;
      drop_oldest();
    }
  }

  const GrammarMemory memory_;
  const std::unique_ptr<MemoryCharge> charge_;  // of the vocabulary

  const Tokenizer& tokenizer_;
  const std::int64_t vocab_size_;
  xgrammar::GrammarCompiler compiler_;
  const std::shared_ptr<BackgroundWorker> worker_ = std::make_shared<BackgroundWorker>();
  std::mutex keeping_;    // of what is below; held for moments, so that nobody waits for a compiler
  std::list<Kept> kept_;  // the one used last in front
  std::unordered_map<std::string, std::list<Kept>::iterator> by_key_;
  std::size_t bytes_ = 0;
  CompileQueue queue_;  // last: it uses the others
};

}  // namespace

bool has_grammars() {
  return true;
}

Result<std::unique_ptr<GrammarEngine>> GrammarEngine::create(const Tokenizer& tokenizer,
                                                             std::int64_t vocab_size,
                                                             std::span<const TokenId> stop_ids,
                                                             const GrammarMemory& memory) {
  if (stop_ids.empty()) {
    return error(StatusCode::kUnimplemented,
                 "answers of a form need a model with a stop id, this one names none");
  }
  std::unique_ptr<MemoryCharge> charge;
  if (memory.charge) {
    KAKEYA_ASSIGN_OR_RETURN(charge, memory.charge(vocabulary_bytes(tokenizer, vocab_size)));
  }
  try {
    return std::make_unique<XgrammarEngine>(tokenizer, vocab_size,
                                            std::vector<int>(stop_ids.begin(), stop_ids.end()),
                                            memory, std::move(charge));
  } catch (const std::exception&) {
    return error(StatusCode::kUnimplemented, "grammars: this vocabulary is not supported");
  }
}

}  // namespace kakeya::service
