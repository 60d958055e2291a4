// A model or a drafter as one GGUF file that llama.cpp loads: tensors, sizes, tokenizer and
// template.
#pragma once

#include <string>

#include "base/memory_budget.h"
#include "convert/gguf_types.h"
#include "convert/model_folder.h"
#include "kakeya/status.h"

namespace kakeya {

struct GgufOptions {
  bool replace = false;  // a file that is there
  int threads = 0;       // 0: one for each CPU
  // The model that a drafter in a folder drafts for, a folder or GGUF file, whose tokenizer the
  // file gets; only for drafters.
  std::string drafter_target = {};
  ProgressCallback progress = {};
  const Importance* importance = nullptr;  // as TensorEncoder's
};

// Writes the model or drafter in the folder or GGUF file `source` as the file `target`: whole or
// not at all. What a GGUF file says beside the network (general.*, tokenizer.*) is taken as it is.
// Errors: those of open_source_model(), gguf_metadata.h and write_gguf(); kInvalidArgument for a
// drafter without target, or with one that it does not fit; kFailedPrecondition if the file is
// there and may not be replaced; kUnavailable without room.
Result<ConversionReport> convert_to_gguf(const std::string& source,
                                         const std::string& target,
                                         const GgufFileType& type,
                                         const GgufOptions& options,
                                         MemoryBudget& budget);

}  // namespace kakeya
