#include "decode/row_encoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {
namespace {

struct Layout {
  Rows key_features;
  Rows value_features;
  Rows key_codes;
  Rows value_codes;
};

Layout lay_out(Arena& arena, const RowEncoderPlan& plan) {
  Layout layout;
  if (plan.features != ProjectionFeatures::kAux) {
    layout.key_features = arena.rows(plan.max_rows, plan.feature_width);
    layout.value_features = arena.rows(plan.max_rows, plan.feature_width);
  }
  layout.key_codes = arena.rows(plan.max_rows, plan.rank);
  layout.value_codes = plan.one_code ? layout.key_codes : arena.rows(plan.max_rows, plan.rank);
  return layout;
}

std::uint64_t arena_bytes(const RowEncoderPlan& plan) {
  Arena measure;
  lay_out(measure, plan);
  return measure.used();
}

// Plans the encoder's own passes, and the taps of the target's.
WorkspacePlan plan_encoding(const DrafterConfig& drafter, const RowEncoderPlan& plan) {
  Arena measure;
  if (plan.features != ProjectionFeatures::kAux) {
    dflash::DraftActivations::layout(measure, drafter, plan.max_rows);
  }
  WorkspacePlan workspace{
      .executor = dflash::plan_drafter_executor(drafter, plan.max_rows),
      .activation_bytes = measure.used(),
      .tap_bytes = static_cast<std::uint64_t>(plan.max_rows * plan.tap_width) * sizeof(float)};
  workspace.executor.max_matmul_width =
      std::max(workspace.executor.max_matmul_width, plan.feature_width);
  return workspace;
}

}  // namespace

RowEncoderPlan plan_row_encoder(const ProjectionConfig& projection,
                                const DrafterConfig& drafter,
                                std::int64_t max_rows) {
  RowEncoderPlan plan{.features = projection.features,
                      .rank = projection.rank,
                      .one_code = projection.one_code,
                      .feature_width = projection.input_width(),
                      .tap_width = static_cast<std::int64_t>(drafter.target_layer_ids.size()) *
                                   drafter.layers.hidden_size,
                      .max_rows = max_rows,
                      .workspace = {}};
  plan.workspace = plan_encoding(drafter, plan);
  return plan;
}

Footprint estimate_row_encoder(const RowEncoderPlan& plan) {
  Footprint footprint;
  footprint.reserved_bytes(MemoryClass::kActivations) =
      MemoryBudget::charged_bytes(arena_bytes(plan));
  return footprint;
}

Result<std::unique_ptr<RowEncoder>> RowEncoder::create(const Projection& projection,
                                                       const dflash::Drafter& drafter,
                                                       Workspace& workspace,
                                                       const RowEncoderPlan& plan,
                                                       MemoryBudget& budget) {
  std::unique_ptr<RowEncoder> encoder(new RowEncoder(projection, drafter, workspace, plan, budget));
  KAKEYA_TRY(encoder->reserve());
  return encoder;
}

Status RowEncoder::reserve() {
  if (arena_.size() > 0) return {};
  KAKEYA_ASSIGN_OR_RETURN(
      arena_, budget_.allocate(MemoryClass::kActivations, arena_bytes(plan_), workspace_.memory()));
  Arena arena(arena_.device<std::byte>());
  const Layout layout = lay_out(arena, plan_);
  key_features_ = layout.key_features;
  value_features_ = layout.value_features;
  key_codes_ = layout.key_codes;
  value_codes_ = layout.value_codes;
  return {};
}

std::unique_ptr<RowEncoder> RowEncoder::fork() const {
  return std::unique_ptr<RowEncoder>(
      new RowEncoder(projection_, drafter_, workspace_, plan_, budget_));
}

void RowEncoder::make_codes(ConstRows keys, ConstRows values) {
  Executor& executor = workspace_.executor();
  projection_.encode_keys(keys, executor, first_rows(key_codes_, keys.count));
  if (plan_.one_code) return;
  projection_.encode_values(values, executor, first_rows(value_codes_, values.count));
}

dflash::DraftActivations RowEncoder::activations(std::int64_t rows) const {
  Arena arena = workspace_.arena();
  return dflash::DraftActivations::layout(arena, drafter_.config(), rows);
}

std::uint64_t RowEncoder::encode(ConstRows taps, const KvCache& cache) {
  const std::uint64_t before = workspace_.bytes_read();
  const std::int64_t rows = taps.count;
  if (plan_.features == ProjectionFeatures::kContext) {
    const Rows keys = first_rows(key_features_, rows);
    const Rows values = first_rows(value_features_, rows);
    drafter_.project_context(taps, workspace_.executor(), activations(rows), keys, values);
    make_codes(keys, values);
  } else {
    make_codes(taps, taps);
  }
  BatchBuilder& builder = workspace_.other_batch();
  builder.clear();
  builder.add_rows(rows, cache.length(), cache.layers());
  workspace_.executor().begin(builder.batch());
  workspace_.executor().store_kv(first_rows(key_codes_, rows), first_rows(value_codes_, rows),
                                 cache.spec().codes);
  return workspace_.bytes_read() - before;
}

Footprint RowEncoder::footprint() const {
  Footprint footprint;
  footprint.reserved_bytes(MemoryClass::kActivations) = arena_.size();
  footprint.live_bytes(MemoryClass::kActivations) = arena_.size();
  return footprint;
}

}  // namespace kakeya
