// A converted model as a folder: weights, configuration and the files around them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "convert/checkpoint_writer.h"
#include "convert/source_model.h"
#include "kakeya/status.h"

namespace kakeya {

struct FolderOptions {
  bool replace = false;  // a model that is there
  int threads = 0;       // 0: one for each CPU
  WriterOptions writer = {};
};

// The report of a conversion.
struct ConversionReport {
  std::int64_t parameters = 0;
  std::int64_t tensors = 0;    // that were written; codes, scales and biases count as one
  std::int64_t quantized = 0;  // of these
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
  std::uint64_t buffer_bytes = 0;          // the most memory that was held, mapped files aside
  std::vector<std::string> left_out = {};  // of the source folder, by name
};

ConversionReport report_of(const SourceModel& model, std::span<const OutputTensor> tensors);

// Writes config.json of this text, the tensors and the companion files (companion_files.h) of the
// model's folder, or those that its GGUF file stands for (gguf_companions.h), into the new folder
// `target`: whole or not at all. Errors: those of check_target_folder(), gguf_companion_files() and
// write_checkpoint().
Result<ConversionReport> write_model_folder(const SourceModel& model,
                                            std::span<const OutputTensor> tensors,
                                            const std::string& config_json,
                                            const std::string& target,
                                            const FolderOptions& options,
                                            MemoryBudget& budget);

}  // namespace kakeya
