#include "decode/row_encoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {
namespace {

struct Layout {
  dflash::DraftActivations activations;
  Rows taps;
  Rows key_features;
  Rows value_features;
  Rows key_codes;
  Rows value_codes;
};

Layout lay_out(Arena& arena, const DrafterConfig& drafter, const RowEncoderPlan& plan) {
  Layout layout;
  if (plan.features != ProjectionFeatures::kAux) {
    layout.activations = dflash::DraftActivations::layout(arena, drafter, plan.max_rows);
    layout.key_features = arena.rows(plan.max_rows, plan.feature_width);
    layout.value_features = arena.rows(plan.max_rows, plan.feature_width);
  }
  layout.taps = arena.rows(plan.max_rows, plan.tap_width);
  layout.key_codes = arena.rows(plan.max_rows, plan.rank);
  layout.value_codes = arena.rows(plan.max_rows, plan.rank);
  return layout;
}

std::uint64_t arena_bytes(const DrafterConfig& drafter, const RowEncoderPlan& plan) {
  Arena measure;
  lay_out(measure, drafter, plan);
  return measure.used();
}

}  // namespace

RowEncoderPlan plan_row_encoder(const ProjectionConfig& projection,
                                const DrafterConfig& drafter,
                                std::int64_t context,
                                std::int64_t max_rows,
                                KvFormat format) {
  RowEncoderPlan plan{.features = projection.features,
                      .rank = projection.rank,
                      .feature_width = projection.input_width(),
                      .tap_width = 0,
                      .max_rows = max_rows,
                      .tokens = {},
                      .executor = dflash::plan_drafter_executor(drafter, max_rows)};
  plan.executor.max_matmul_width = std::max(plan.executor.max_matmul_width, plan.feature_width);
  if (projection.features == ProjectionFeatures::kToken) {
    plan.tokens = dflash::plan_context(drafter, context, max_rows, {.format = format});
  } else {
    plan.tap_width =
        static_cast<std::int64_t>(drafter.target_layer_ids.size()) * drafter.layers.hidden_size;
  }
  return plan;
}

Footprint estimate_row_encoder(const DrafterConfig& drafter,
                               const RowEncoderPlan& plan,
                               const Backend& backend) {
  Footprint footprint = plan.tokens.estimate();
  footprint.reserved_bytes(MemoryClass::kActivations) +=
      MemoryBudget::charged_bytes(arena_bytes(drafter, plan)) +
      backend.executor_bytes(plan.executor);
  return footprint;
}

Result<std::unique_ptr<RowEncoder>> RowEncoder::create(const Projection& projection,
                                                       const dflash::Drafter& drafter,
                                                       Backend& backend,
                                                       const RowEncoderPlan& plan,
                                                       MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(KvCache tokens, KvCache::create(plan.tokens, budget));
  std::unique_ptr<RowEncoder> encoder(
      new RowEncoder(projection, drafter, backend, plan, std::move(tokens), budget));
  KAKEYA_TRY(encoder->allocate_scratch());
  return encoder;
}

Status RowEncoder::allocate_scratch() {
  if (executor_ != nullptr) return {};
  KAKEYA_ASSIGN_OR_RETURN(Buffer memory, budget_.allocate(MemoryClass::kActivations,
                                                          arena_bytes(drafter_.config(), plan_)));
  KAKEYA_ASSIGN_OR_RETURN(executor_, backend_.create_executor(plan_.executor, budget_));
  executor_bytes_ = backend_.executor_bytes(plan_.executor);
  arena_ = std::move(memory);
  Arena arena(arena_.data());
  const Layout layout = lay_out(arena, drafter_.config(), plan_);
  activations_ = layout.activations;
  taps_ = layout.taps;
  key_features_ = layout.key_features;
  value_features_ = layout.value_features;
  key_codes_ = layout.key_codes;
  value_codes_ = layout.value_codes;
  return {};
}

std::unique_ptr<RowEncoder> RowEncoder::fork() {
  return std::unique_ptr<RowEncoder>(
      new RowEncoder(projection_, drafter_, backend_, plan_, tokens_.fork(), budget_));
}

Status RowEncoder::reserve(std::int64_t rows) {
  KAKEYA_TRY(allocate_scratch());
  return runs_on_tokens() ? tokens_.reserve(rows) : Status();
}

std::span<const std::int64_t> RowEncoder::taps() const {
  if (plan_.tap_width == 0) return {};
  return drafter_.config().target_layer_ids;
}

Rows RowEncoder::tap_rows(std::int64_t rows) const {
  return first_rows(taps_, rows);
}

void RowEncoder::encode(std::span<const TokenId> ids, ConstRows taps, const KvCache& cache) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  ConstRows keys = first_rows(key_features_, rows);
  ConstRows values = first_rows(value_features_, rows);
  switch (plan_.features) {
    case ProjectionFeatures::kToken:
      drafter_.project_tokens(ids, tokens_, *executor_, activations_,
                              first_rows(key_features_, rows), first_rows(value_features_, rows));
      break;
    case ProjectionFeatures::kContext:
      drafter_.project_context(taps, *executor_, activations_, first_rows(key_features_, rows),
                               first_rows(value_features_, rows));
      break;
    case ProjectionFeatures::kAux:
      keys = taps;
      values = taps;
      break;
  }
  const Rows key_codes = first_rows(key_codes_, rows);
  const Rows value_codes = first_rows(value_codes_, rows);
  projection_.encode_keys(keys, *executor_, key_codes);
  projection_.encode_values(values, *executor_, value_codes);
  executor_->store_kv(key_codes, value_codes, cache.length(), cache.codes());
}

void RowEncoder::commit(std::int64_t rows) {
  if (runs_on_tokens()) tokens_.commit(rows);
}

Status RowEncoder::check_truncate(Position length) const {
  return runs_on_tokens() ? tokens_.check_truncate(length) : Status();
}

void RowEncoder::truncate(Position length) {
  if (runs_on_tokens()) KAKEYA_CHECK(tokens_.truncate(length).has_value());  // was checked
}

Footprint RowEncoder::footprint() const {
  Footprint footprint = tokens_.footprint();
  const std::uint64_t activations = arena_.size() + executor_bytes_;
  footprint.reserved_bytes(MemoryClass::kActivations) += activations;
  footprint.live_bytes(MemoryClass::kActivations) += activations;
  return footprint;
}

}  // namespace kakeya
