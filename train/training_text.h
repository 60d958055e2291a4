// Texts to train on: what the model itself writes, or files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya::train {

// Tokens of a document, each run from nothing.
struct TrainingText {
  std::vector<std::vector<TokenId>> training;
  // Never trained on: what equals one of these is in neither.
  std::vector<std::vector<TokenId>> validation;
};

std::int64_t count_tokens(std::span<const std::vector<TokenId>> documents);

// With tokens done and in all.
using TextProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct TextOptions {
  std::int64_t tokens = 0;  // about so many in all; files: at most
  std::int64_t window = 0;  // most tokens of a document
  std::uint64_t seed = 0;
  TextProgress progress = {};
};

// Samples at temperature 1 from short beginnings, plain ones and, if the model has a chat template,
// requests. A document ends where the model ends it. Each tenth is for validation. The same seed
// gives the same documents. Errors: those of the engine; kInvalidArgument if the model ends its
// texts so early that they never are so many tokens.
Result<TrainingText> sample_own_text(Engine& engine, const TextOptions& options);

// Files cut into windows; the last tenth of each file's windows, one at least, is for validation.
// Errors: kNotFound; of the tokenizer; kInvalidArgument for a file of fewer than two windows.
Result<TrainingText> read_training_files(Engine& engine,
                                         std::span<const std::string> files,
                                         const TextOptions& options);

}  // namespace kakeya::train
