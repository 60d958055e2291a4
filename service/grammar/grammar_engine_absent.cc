// Stands in for the engine in builds without xgrammar.
#include "base/status.h"
#include "service/grammar/grammar_engine.h"

namespace kakeya::service {

bool has_grammars() {
  return false;
}

Result<std::unique_ptr<GrammarEngine>> GrammarEngine::create(const Tokenizer& /*tokenizer*/,
                                                             std::int64_t /*vocab_size*/,
                                                             std::span<const TokenId> /*stop_ids*/,
                                                             const GrammarMemory& /*memory*/) {
  return error(StatusCode::kUnimplemented,
               "this build holds no answers to a schema or grammar: it was made without xgrammar, "
               "which `make build` fetches where there is a network");
}

}  // namespace kakeya::service
