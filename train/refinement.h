// Training of a projection's matrices by gradient: what it is given, and what comes of it. It runs
// on MLX; this file does not know of that.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "captured_rows.h"
#include "drafter_weights.h"
#include "kakeya/status.h"

namespace kakeya::train {

// The loss that is made least. kClosed: squares, in closed form, without steps; the others are in
// projection_losses.h.
enum class ProjectionLoss : std::uint8_t {
  kClosed,
  kMse,
  kRelmse,
  kCosMag,
  kCombined,
  kAttnDistill,
  kAttnDistillHybrid
};

inline constexpr std::array kProjectionLosses = {
    std::pair<std::string_view, ProjectionLoss>{"closed", ProjectionLoss::kClosed},
    std::pair<std::string_view, ProjectionLoss>{"mse", ProjectionLoss::kMse},
    std::pair<std::string_view, ProjectionLoss>{"relmse", ProjectionLoss::kRelmse},
    std::pair<std::string_view, ProjectionLoss>{"cos_mag", ProjectionLoss::kCosMag},
    std::pair<std::string_view, ProjectionLoss>{"combined", ProjectionLoss::kCombined},
    std::pair<std::string_view, ProjectionLoss>{"attn_distill", ProjectionLoss::kAttnDistill},
    std::pair<std::string_view, ProjectionLoss>{"attn_distill_hybrid",
                                                ProjectionLoss::kAttnDistillHybrid}};

// True if a loss looks at the output of attention.
inline bool sees_attention(ProjectionLoss loss) {
  return loss == ProjectionLoss::kAttnDistill || loss == ProjectionLoss::kAttnDistillHybrid;
}

// Encoders of keys and values [R, F], then for each captured layer its decoders of keys and values
// [K * E, R]; by the names of expected_tensors().
using ProjectionMatrices = std::vector<DrafterTensor>;

struct RefinementPoint {
  std::int64_t step = 0;  // how many are done
  // Mean of the steps since the point before; none before the first.
  std::optional<double> loss;
  double validation_loss = 0.0;  // mean of the validation documents
  // The shares of the energy of the validation text that are predicted, mean of the layers that
  // codes are made for. on_point sets them.
  double explained_keys = 0.0;
  double explained_values = 0.0;
};

struct RefinementTask {
  ProjectionLoss loss = ProjectionLoss::kMse;
  // One code of keys and values: the encoder of values is that of keys, whatever it was.
  bool has_one_code = false;
  const CapturePlan& plan;
  // Rows of a document before it are left out, or, where the loss sees attention, as they are:
  // sessions keep them.
  std::int64_t first_row = 0;
  std::span<const OutputPart> attention = {};  // of the plan's layers, where the loss sees it
  // Each with more rows than that; at least one of both.
  std::span<const CapturedDocument> training;
  std::span<const CapturedDocument> validation;
  // Highest change of a step, as a share of each matrix's root mean square at the start.
  double rate = 0.0;
  std::int64_t steps = 0;  // 0: as many as `minutes` give, which is measured once
  double minutes = 0.0;
  std::uint64_t seed = 0;  // of the order of documents
  // Called at the start, some 20 times at even distances, and at the end; may be empty.
  std::function<Status(
      RefinementPoint& point, std::int64_t steps, const ProjectionMatrices& matrices)>
      on_point = {};
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  // A file in which the state is kept, every so many minutes and at the end; empty: none. Steps go
  // on from one that is there, and give the bits of a training that was not stopped.
  std::string checkpoint = {};
  double save_minutes = 5.0;
  // The settings that the numbers depend on beside start, rate, steps and seed: a checkpoint of
  // others is refused.
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
};

struct Refinement {
  ProjectionMatrices matrices;
  std::int64_t steps = 0;
  std::vector<RefinementPoint> points;
  double seconds = 0.0;  // of the steps that were made now
};

// Makes the matrices better by steps of one document each. AdamW (0.9, 0.999; decay 0.01), the rate
// rising over the first 5 % of the steps and falling like a cosine to a hundredth, gradients cut at
// length 1, all in f32. The same task gives the same bits on the same machine. Errors: kDataLoss
// for a loss or a gradient that is not finite, or a checkpoint that is none; kFailedPrecondition
// for one of another training; kUnavailable if it cannot be written; as MLX has them; those of
// on_point.
using RefineProjection =
    std::function<Result<Refinement>(const RefinementTask& task, ProjectionMatrices start)>;

// Empty in a build without MLX.
RefineProjection projection_refiner();

}  // namespace kakeya::train
