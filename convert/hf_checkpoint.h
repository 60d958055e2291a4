// Models and drafters as Hugging Face publishes them: numbers, experts fused, configuration without
// a word of quantisation.
#pragma once

#include <optional>
#include <string>

#include "base/memory_budget.h"
#include "convert/model_folder.h"
#include "kakeya/status.h"
#include "tensor/dtype.h"

namespace kakeya {

// Writes the model or drafter in the folder or GGUF file `source` into the new folder `target`,
// every number in `dtype` (F32, F16 or BF16), or as it is if that is not given. Quantised tensors
// are decoded. Errors: those of open_source_model() and write_model_folder(); kInvalidArgument for
// a quantised model without a type.
Result<ConversionReport> convert_to_hf(const std::string& source,
                                       const std::string& target,
                                       std::optional<DType> dtype,
                                       const FolderOptions& options,
                                       MemoryBudget& budget);

}  // namespace kakeya
