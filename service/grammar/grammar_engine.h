// Constrained decoding: compiles grammars for a vocabulary and makes constraints of them. The
// engine is xgrammar (https://github.com/mlc-ai/xgrammar); a build without it refuses all grammars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kakeya/constraint.h"
#include "kakeya/memory.h"
#include "kakeya/status.h"
#include "kakeya/tokenizer.h"
#include "kakeya/types.h"
#include "service/grammar/answer_format.h"
#include "service/grammar/compile_terms.h"
#include "service/thought_markers.h"

namespace kakeya::service {

// True if this build can hold answers to a form.
bool has_grammars();

// A grammar for one vocabulary. Immutable; several threads may share it.
class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;

  // Makes the constraint of one answer. With markers it may think before, as long as it likes: the
  // grammar begins behind a thought. `in_thought`: the prompt has opened one.
  virtual std::unique_ptr<Constraint> constrain(const std::optional<ThoughtMarkers>& markers,
                                                bool in_thought) const = 0;
  virtual std::size_t bytes() const = 0;
  // GrammarText::notes.
  virtual const std::vector<std::string>& notes() const = 0;
};

// The memory that grammars may take.
struct GrammarMemory {
  std::uint64_t most_kept = std::uint64_t{64} << 20;  // of those that no answer needs
  // Charges bytes to a limit for as long as what it returns lives; empty: there is none.
  std::function<Result<std::unique_ptr<MemoryCharge>>(std::uint64_t bytes)> charge = {};
};

// Thread-safe. Keeps what it has compiled, the latest of it.
class GrammarEngine {
 public:
  // Creates an engine for logits of so many tokens. The tokenizer must outlive it and what it
  // makes. Errors: kUnimplemented in a build without grammars, or for a model without stop ids;
  // those of GrammarMemory::charge.
  static Result<std::unique_ptr<GrammarEngine>> create(const Tokenizer& tokenizer,
                                                       std::int64_t vocab_size,
                                                       std::span<const TokenId> stop_ids,
                                                       const GrammarMemory& memory = {});

  virtual ~GrammarEngine() = default;

  // The grammar of such answers, or of calls of tools in their place. Takes up to some seconds for
  // the largest that are allowed; callers wait for their turns, but for those whose grammar is
  // kept. Errors: as grammar_of() and CompileQueue::run(), kInvalidArgument for a grammar that
  // allows nothing, or that would take too long for each token, and those of GrammarMemory::charge.
  virtual Result<std::shared_ptr<const CompiledGrammar>> compile(
      const AnswerFormat& format,
      const CallRules* calls = nullptr,
      const CompileTerms& terms = {}) = 0;

  // Compiles no more; callers that wait get kUnavailable.
  virtual void stop() = 0;
  // True while something is compiled that nothing can stop.
  virtual bool is_compiling() const = 0;
};

}  // namespace kakeya::service
