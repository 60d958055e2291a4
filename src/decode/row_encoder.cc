#include "decode/row_encoder.h"

#include <algorithm>
#include <array>
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
    layout.key_features = arena.rows(plan.feature_rows, plan.feature_width);
    layout.value_features = arena.rows(plan.feature_rows, plan.feature_width);
  }
  layout.key_codes = arena.rows(plan.feature_rows, plan.rank);
  layout.value_codes = plan.one_code ? layout.key_codes : arena.rows(plan.feature_rows, plan.rank);
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
    dflash::DraftActivations::layout(measure, drafter, plan.feature_rows);
  }
  WorkspacePlan workspace{
      .executor = dflash::plan_drafter_executor(drafter, plan.feature_rows),
      .activation_bytes = measure.used(),
      .tap_bytes = static_cast<std::uint64_t>(plan.max_rows * plan.tap_width) * sizeof(float)};
  workspace.executor.max_matmul_width =
      std::max(workspace.executor.max_matmul_width, plan.feature_width);
  return workspace;
}

}  // namespace

RowEncoderPlan plan_row_encoder(const ProjectionConfig& projection,
                                const DrafterConfig& drafter,
                                std::int64_t context,
                                std::int64_t max_rows,
                                KvFormat format) {
  const bool whole_text =
      projection.features == ProjectionFeatures::kToken && !projection.causal_features;
  const std::int64_t feature_rows = whole_text ? context : max_rows;
  RowEncoderPlan plan{.features = projection.features,
                      .rank = projection.rank,
                      .one_code = projection.one_code,
                      .feature_width = projection.input_width(),
                      .tap_width = 0,
                      .max_rows = max_rows,
                      .feature_rows = feature_rows,
                      .whole_text = whole_text,
                      .tokens = {},
                      .workspace = {}};
  if (projection.features == ProjectionFeatures::kToken) {
    DrafterConfig layers = drafter;
    // Older projections know no windows.
    if (whole_text) std::ranges::fill(layers.layers.layer_types, LayerType::kFull);
    plan.tokens = dflash::plan_context(layers, context, feature_rows, {.format = format});
  } else {
    plan.tap_width =
        static_cast<std::int64_t>(drafter.target_layer_ids.size()) * drafter.layers.hidden_size;
  }
  plan.workspace = plan_encoding(drafter, plan);
  return plan;
}

Footprint estimate_row_encoder(const RowEncoderPlan& plan) {
  Footprint footprint = plan.tokens.estimate();
  footprint.reserved_bytes(MemoryClass::kActivations) +=
      MemoryBudget::charged_bytes(arena_bytes(plan));
  return footprint;
}

Result<std::unique_ptr<RowEncoder>> RowEncoder::create(const Projection& projection,
                                                       const dflash::Drafter& drafter,
                                                       Workspace& workspace,
                                                       const RowEncoderPlan& plan,
                                                       MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(KvCache tokens, KvCache::create(plan.tokens, budget, workspace.memory()));
  std::unique_ptr<RowEncoder> encoder(
      new RowEncoder(projection, drafter, workspace, plan, std::move(tokens), budget));
  KAKEYA_TRY(encoder->own_rows());
  return encoder;
}

Status RowEncoder::own_rows() {
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

std::unique_ptr<RowEncoder> RowEncoder::fork() {
  return std::unique_ptr<RowEncoder>(
      new RowEncoder(projection_, drafter_, workspace_, plan_, tokens_.fork(), budget_));
}

void RowEncoder::make_codes(ConstRows keys, ConstRows values) {
  Executor& executor = workspace_.executor();
  projection_.encode_keys(keys, executor, first_rows(key_codes_, keys.count));
  if (plan_.one_code) return;
  projection_.encode_values(values, executor, first_rows(value_codes_, values.count));
}

void RowEncoder::encode_tokens(std::span<const TokenId> ids) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  const Rows keys = first_rows(key_features_, rows);
  const Rows values = first_rows(value_features_, rows);
  BatchBuilder& builder = workspace_.other_batch();
  builder.clear();
  builder.add(ids, {}, tokens_.length(), tokens_.layers(), /*logit_rows=*/0);
  workspace_.executor().begin(builder.batch());
  drafter_.project_tokens(builder.batch(), !plan_.whole_text, workspace_.executor(),
                          activations(rows), keys, values);
  make_codes(keys, values);
}

dflash::DraftActivations RowEncoder::activations(std::int64_t rows) const {
  Arena arena = workspace_.arena();
  return dflash::DraftActivations::layout(arena, drafter_.config(), rows);
}

Status RowEncoder::look_ahead(std::span<const TokenId> ids) {
  const Workspace::Turn turn = workspace_.take_turn();
  KAKEYA_TRY(own_rows());
  looked_ahead_ = 0;
  tokens_.clear();
  KAKEYA_TRY(tokens_.reserve(static_cast<std::int64_t>(ids.size())));
  encode_tokens(ids);
  const auto rows = static_cast<std::int64_t>(ids.size());
  KAKEYA_TRY(workspace_.executor().end(
      std::array<ConstRows, 2>{first_rows(key_codes_, rows), first_rows(value_codes_, rows)}));
  looked_ahead_ = static_cast<std::int64_t>(ids.size());
  return {};
}

Status RowEncoder::reserve(Position first, std::int64_t rows) {
  if (plan_.whole_text && first + rows > looked_ahead_) {
    return error(StatusCode::kUnimplemented,
                 "features of the whole text are made only where all of it is run from its "
                 "beginning: there are none of position {}",
                 looked_ahead_);
  }
  KAKEYA_TRY(own_rows());
  return runs_on_tokens() ? tokens_.reserve(rows) : Status();
}

std::span<const std::int64_t> RowEncoder::taps() const {
  if (plan_.tap_width == 0) return {};
  return drafter_.config().target_layer_ids;
}

std::uint64_t RowEncoder::encode(std::span<const TokenId> ids,
                                 ConstRows taps,
                                 const KvCache& cache) {
  const std::uint64_t before = workspace_.bytes_read();
  const auto rows = static_cast<std::int64_t>(ids.size());
  switch (plan_.features) {
    case ProjectionFeatures::kToken:
      if (!plan_.whole_text) encode_tokens(ids);
      break;
    case ProjectionFeatures::kContext: {
      const Rows keys = first_rows(key_features_, rows);
      const Rows values = first_rows(value_features_, rows);
      drafter_.project_context(taps, workspace_.executor(), activations(rows), keys, values);
      make_codes(keys, values);
      break;
    }
    case ProjectionFeatures::kAux:
      make_codes(taps, taps);
      break;
  }
  // Codes of the whole text lie where their positions say.
  const Position first = plan_.whole_text ? cache.length() : 0;
  const auto of_pass = [&](const Rows& codes) { return rows_from(codes, first, rows); };
  BatchBuilder& builder = workspace_.other_batch();
  builder.clear();
  builder.add_rows(rows, cache.length(), cache.layers());
  workspace_.executor().begin(builder.batch());
  workspace_.executor().store_kv(of_pass(key_codes_), of_pass(value_codes_), cache.spec().codes);
  return workspace_.bytes_read() - before;
}

void RowEncoder::commit(std::int64_t rows) {
  if (runs_on_tokens()) tokens_.commit(rows);
}

Status RowEncoder::check_truncate(Position length) const {
  return runs_on_tokens() ? tokens_.check_truncate(length) : Status();
}

void RowEncoder::truncate(Position length) {
  looked_ahead_ = std::min(looked_ahead_, length);
  if (runs_on_tokens()) KAKEYA_CHECK(tokens_.truncate(length).has_value());  // was checked
}

Footprint RowEncoder::footprint() const {
  Footprint footprint = tokens_.footprint();
  footprint.reserved_bytes(MemoryClass::kActivations) += arena_.size();
  footprint.live_bytes(MemoryClass::kActivations) += arena_.size();
  return footprint;
}

}  // namespace kakeya
