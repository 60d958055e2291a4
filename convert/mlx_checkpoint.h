// Models and drafters in MLX's affine format, named and configured as mlx-lm makes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "convert/model_folder.h"
#include "convert/source_model.h"
#include "kakeya/status.h"
#include "tensor/affine_format.h"

namespace kakeya {

// The tensors as MLX has them: experts split into switch_glu.gate_proj and up_proj, prefixes as in
// mlx-lm's models. With a format, matrices and embeddings whose rows are whole groups are coded in
// it, routers in 8 bits; everything else keeps its type.
std::vector<OutputTensor> mlx_tensors(const SourceModel& model,
                                      const std::optional<AffineFormat>& format);

// Quantises the model or drafter in the folder or GGUF file `source` into the new folder `target`,
// with the files around it (companion_files.h). Written whole or not at all.
//
// Errors: those of open_source_model(), check_target_folder() and write_checkpoint();
// kInvalidArgument for a format that MLX does not have, or a model that is quantised already.
Result<ConversionReport> quantize_to_mlx(const std::string& source,
                                         const std::string& target,
                                         AffineFormat format,
                                         const FolderOptions& options,
                                         MemoryBudget& budget);

}  // namespace kakeya
