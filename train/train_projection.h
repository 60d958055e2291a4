// Trains a projection (docs/training.md): texts, passes over them, a fit in closed form, maybe
// steps by gradient, a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "code_choice.h"
#include "formats/projection_config.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "refinement.h"
#include "runtime/engine_impl.h"

namespace kakeya::train {

// The layers whose rows are to be restored.
enum class FittedLayers : std::uint8_t { kFull, kSliding, kAll };

// "full", "sliding", "all".
std::string_view fitted_layers_name(FittedLayers layers);

// The start of steps by gradient.
enum class ProjectionInit : std::uint8_t { kClosed, kRandom };

// Steps by gradient. Without them, where the loss is kClosed, all else is as it is here.
struct GradientTraining {
  ProjectionLoss loss = ProjectionLoss::kClosed;
  ProjectionInit init = ProjectionInit::kClosed;  // kClosed: the fit in closed form
  double minutes = 0.0;                           // of steps; measured, and turned into steps
  std::int64_t steps = 0;                         // one of the two
  double rate = 0.0;      // as RefinementTask::rate; 0: 0.003, where the start is random 0.05
  std::int64_t rows = 0;  // most that are kept in memory to train on; 0: kDefaultRows
  // As RefinementTask has them. The file stays when the training is done.
  std::string checkpoint = {};
  double save_minutes = 5.0;

  static constexpr std::int64_t kDefaultRows = 32'768;
  static constexpr std::int64_t kLeastRows = 512;  // of any document
  static constexpr std::int64_t kMostSteps = 10'000'000;
};

struct ProjectionTraining {
  EngineOptions engine = {};  // model_dir, draft.source, backend, threads, memory_limit
  ProjectionFeatures features = ProjectionFeatures::kAux;
  FittedLayers layers = FittedLayers::kFull;
  std::int64_t rank = 96;
  // Above 0: one code of keys and values, of at most so many bytes a token. Its rank and the way it
  // is stored are those that leave least of validation text; `rank` is not looked at.
  std::int64_t code_bytes = 0;
  std::int64_t tokens = 150'000;
  std::vector<std::string> texts = {};  // files; none: the model's own text
  double ridge = 1e-6;
  GradientTraining gradient = {};
  std::uint64_t seed = 0;
  std::string out = {};
  // Called now and then, with what is done of a stage; may be empty.
  std::function<void(std::string_view stage, std::int64_t done, std::int64_t total)> progress = {};
  std::function<void(const std::string& line)> on_line = {};  // what was measured meanwhile

  static constexpr std::int64_t kMostTokens = 100'000'000;
  static constexpr std::int64_t kMostCodeBytes = 8192;
  static constexpr std::int64_t kChoiceRows = 8192;  // of validation text, to choose a code by
};

// Errors: kInvalidArgument for options out of range or that exclude one another; kUnimplemented for
// steps by gradient without a refiner.
Status check_projection_training(const ProjectionTraining& training, bool has_refiner);

// The report of one layer: shares of the energy of its raw keys and values that are predicted.
struct LayerReport {
  std::int64_t layer = 0;
  bool fitted = false;  // whether the codes are made for it
  double key_training = 0.0;
  double key_validation = 0.0;
  double value_training = 0.0;
  double value_validation = 0.0;
};

struct ProjectionReport {
  std::int64_t training_documents = 0;
  std::int64_t training_tokens = 0;
  std::int64_t validation_documents = 0;
  std::int64_t validation_tokens = 0;
  std::uint64_t training_hash = 0;  // XXH3 of the token ids of each part
  std::uint64_t validation_hash = 0;
  std::int64_t rank = 0;
  // The choices of one code: what its bytes can be spent on, which of that is taken, and the rows
  // themselves.
  std::vector<CodeChoice> choices;
  CodeChoice chosen;
  std::vector<CodeChoice> rows;
  std::vector<LayerReport> layers;
  // The losses of steps by gradient; empty without.
  std::vector<RefinementPoint> losses;
  std::int64_t steps = 0;
  double rate = 0.0;
  std::int64_t captured_training = 0;  // rows that were kept for steps
  std::int64_t captured_validation = 0;
  std::uint64_t captured_bytes = 0;
  double step_seconds = 0.0;
  double text_seconds = 0.0;
  double pass_seconds = 0.0;
  double fit_seconds = 0.0;
};

// Gives the text that is written beside the weights as training.json.
using DescribeTraining =
    std::function<std::string(const EngineImpl& engine, const ProjectionReport& report)>;

// The folder appears complete or not at all. The same options give the same weights, bit for bit.
// With steps by gradient that holds on the same machine. `refine`: projection_refiner(), or empty.
// Errors: one line each. kFailedPrecondition if `out` is there, or for a model without a drafter;
// kUnimplemented for steps by gradient without `refine`; kInvalidArgument for options out of range
// or too little text; kDataLoss for a model whose rows are not finite, or a loss that is not;
// kUnavailable if the disk refuses; of opening and running the model.
Result<ProjectionReport> train_projection(const ProjectionTraining& training,
                                          const DescribeTraining& describe,
                                          const RefineProjection& refine = {});

}  // namespace kakeya::train
