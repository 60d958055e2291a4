// Keyword arguments of Python as the engine's options. Names that nobody reads are refused, and
// what is not given keeps the engine's own default.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/constraint.h"
#include "kakeya/chat.h"
#include "kakeya/embedding.h"
#include "kakeya/options.h"
#include "kakeya/text_generation.h"
#include "service/grammar/answer_format.h"

namespace kakeya::python {

namespace nb = nanobind;

// How a generation goes on, and what its answer is held to: a form, a constraint, or neither.
struct GenerationWish {
  TextOptions text = {};
  service::AnswerFormat format = {};
  std::shared_ptr<PythonConstraint> constraint = {};  // null: none
};

// Each throws TypeError for an unknown name or a value of another type, ValueError for a word that
// is none of the option's.
EngineOptions engine_options(const nb::dict& given);
// On top of `base`, which are the engine's.
SessionOptions session_options(const nb::dict& given, const SessionOptions& base);
GenerationWish generation_wish(const nb::dict& given);
EmbeddingOptions embedding_options(const nb::dict& given);
ChatOptions chat_options(const nb::dict& given);
// The recommendation as keyword arguments.
nb::dict sampling_keywords(const SamplingOptions& options);

// Reads any sequence of integers, NumPy's arrays too. Throws Raised with kResourceExhausted for
// more than `most`, which is what `whose` has room for; it reads no more than one of those.
std::vector<TokenId> token_ids(nb::handle given,
                               std::int64_t most,
                               const std::string& whose = "the context");

}  // namespace kakeya::python
