#include "decode/timeline_plan.h"

#include <algorithm>
#include <iterator>

#include "base/status.h"
#include "formats/families.h"

namespace kakeya {
namespace {

// Positions are exact as f32 up to here, as RoPE takes them.
constexpr std::int64_t kMaxBoundedContext = std::int64_t{1} << 24;

std::string_view kv_type_name(KvType type) {
  return kKvTypes[static_cast<std::size_t>(type)].first;
}

// The bits of a calibrated type.
std::optional<KvBits> bits_of(KvType type) {
  for (int keys = kLeastCalibratedBits; keys <= kMostCalibratedBits; ++keys) {
    for (int values = kLeastCalibratedBits; values <= kMostCalibratedBits; ++values) {
      if (calibrated_kv(keys, values) == type) return KvBits{keys, values};
    }
  }
  return std::nullopt;
}

KvFormat kv_format(KvType type, Compute compute) {
  // Exact rows of calibrated types are stored as without a type.
  if (type != KvType::kAuto && !is_calibrated(type)) return kv_format_of(type);
  return compute == Compute::kF32 ? KvFormat::kF32 : KvFormat::kBf16;
}

// Full layers of a calibrated type.
Result<KvLayerPlan> plan_coded(const ModelConfig& config,
                               const SessionOptions& options,
                               Compute compute) {
  const std::string_view name = kv_type_name(options.kv_full);
  if (options.evicted_full != Evicted::kKeep) {
    return invalid_argument(
        "full layers stored as {} keep all rows: expected SessionOptions::evicted_full to keep "
        "them",
        name);
  }
  if (options.kv_exact < 1 || options.kv_exact > SessionOptions::kMostKept) {
    return invalid_argument("SessionOptions::kv_exact must be 1 to {} but is {}",
                            SessionOptions::kMostKept, options.kv_exact);
  }
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    if (config.is_sliding(l) || !config.owns_kv(l)) continue;
    const std::int64_t head_dim = config.layer_head_dim(l);
    if (head_dim % kCodeGroup == 0 && head_dim <= kMaxKvHeadDim) continue;
    return invalid_argument(
        "the KV cache cannot be stored as {}: it takes heads of whole groups of {}, at most {} "
        "elements, but those of layer {} have {}",
        name, kCodeGroup, kMaxKvHeadDim, l, head_dim);
  }
  return KvLayerPlan{.format = kv_format(options.kv_full, compute),
                     .sink = options.sink,
                     .kept = options.kv_exact,
                     .coded = bits_of(options.kv_full)};
}

Result<KvLayerPlan> plan_layers(const SessionOptions& options,
                                KvType type,
                                Evicted evicted,
                                Compute compute) {
  KvLayerPlan plan{.format = kv_format(type, compute)};
  if (evicted == Evicted::kKeep) return plan;
  plan.restored = evicted == Evicted::kRestore;
  if (options.window == 0) {
    return invalid_argument("rows can be {} only behind a window; set SessionOptions::window",
                            plan.restored ? "restored" : "dropped");
  }
  plan.sink = options.sink;
  plan.kept = options.window;
  return plan;
}

// The part of the plan that concerns restoring. A row is restored only after its pass, when there
// is a code of it, so the passes must not be longer than the window.
Status plan_restoring(const SessionOptions& options,
                      Compute compute,
                      std::int64_t logit_rows,
                      const RestoringConfigs& restoring,
                      KvPlan& plan) {
  if (restoring.projection == nullptr) {
    return invalid_argument(
        "rows can be restored only with a projection; name its folder in "
        "EngineOptions::projection");
  }
  if (options.window < logit_rows) {
    return invalid_argument(
        "SessionOptions::window must be {} or more where rows are restored, as many as a draft is "
        "verified with, but is {}",
        logit_rows, options.window);
  }
  plan.rank = restoring.projection->rank;
  plan.one_code = restoring.projection->one_code;
  plan.codes = options.kv_codes == KvType::kAuto && restoring.projection->code_format
                   ? *restoring.projection->code_format
                   : kv_format(options.kv_codes, compute);
  return {};
}

Result<KvPlan> plan_kv(const ModelConfig& config,
                       const SessionOptions& options,
                       Compute compute,
                       const Comparison& comparison) {
  if (options.sink < 0 || options.window < 0) {
    return invalid_argument(
        "SessionOptions::sink and SessionOptions::window must be 0 or more but are {} and {}",
        options.sink, options.window);
  }
  if (std::max(options.sink, options.window) > SessionOptions::kMostKept) {
    return invalid_argument(
        "SessionOptions::sink and SessionOptions::window must be at most {} but are {} and {}",
        SessionOptions::kMostKept, options.sink, options.window);
  }
  for (const auto& [name, type] :
       {std::pair("kv_full", options.kv_full), std::pair("kv_sliding", options.kv_sliding),
        std::pair("kv_drafter", options.kv_drafter), std::pair("kv_codes", options.kv_codes)}) {
    if (static_cast<std::size_t>(type) >= std::size(kKvTypes)) {
      return invalid_argument("SessionOptions::{} is no type of rows: {}", name,
                              static_cast<int>(type));
    }
    if (is_calibrated(type) && name != std::string_view("kv_full")) {
      return invalid_argument(
          "SessionOptions::{} cannot be {}: calibrated types are for full layers "
          "(SessionOptions::kv_full)",
          name, kv_type_name(type));
    }
  }
  for (const auto& [name, evicted] : {std::pair("evicted_full", options.evicted_full),
                                      std::pair("evicted_sliding", options.evicted_sliding)}) {
    if (evicted > Evicted::kRestore) {
      return invalid_argument("SessionOptions::{} is no way to treat rows: {}", name,
                              static_cast<int>(evicted));
    }
  }
  KvPlan plan{.full = {}, .sliding = {}, .pairs = comparison.kv_pairs};
  if (is_calibrated(options.kv_full)) {
    KAKEYA_ASSIGN_OR_RETURN(plan.full, plan_coded(config, options, compute));
  } else {
    KAKEYA_ASSIGN_OR_RETURN(plan.full,
                            plan_layers(options, options.kv_full, options.evicted_full, compute));
  }
  KAKEYA_ASSIGN_OR_RETURN(
      plan.sliding, plan_layers(options, options.kv_sliding, options.evicted_sliding, compute));
  return plan;
}

std::uint64_t arena_bytes(const ModelConfig& config, std::int64_t max_rows) {
  Arena measure;
  Activations::layout(measure, config, max_rows);
  return measure.used();
}

}  // namespace

Status check_restorable(const ModelConfig& config) {
  const Family& family = family_of(config.architecture);
  std::string_view why;
  if (!family.head_norms) why = "its keys have no norm";
  if (config.qkv_bias) why = "its keys and values have biases";
  if (config.num_kv_shared_layers > 0) why = "its layers share keys and values";
  if (why.empty()) return {};
  return error(StatusCode::kUnimplemented,
               "evicted rows of a {} model cannot be restored, for {}: expected kept or dropped "
               "ones (SessionOptions::evicted_full, SessionOptions::evicted_sliding)",
               family.name, why);
}

WorkspacePlan plan_target_passes(const ModelConfig& config,
                                 std::int64_t max_rows,
                                 std::int64_t logit_rows) {
  return {.executor = plan_executor(config, max_rows),
          .activation_bytes = arena_bytes(config, max_rows),
          .logit_bytes = float_bytes(logit_rows, config.vocab_size)};
}

Result<TimelinePlan> plan_timeline(const ModelConfig& config,
                                   const SessionOptions& options,
                                   Compute compute,
                                   std::int64_t logit_rows,
                                   const RestoringConfigs& restoring,
                                   const Comparison& comparison) {
  KAKEYA_ASSIGN_OR_RETURN(KvPlan kv, plan_kv(config, options, compute, comparison));
  const bool restores = kv.full.restored || kv.sliding.restored;
  if (restores) KAKEYA_TRY(check_restorable(config));
  if (restores) KAKEYA_TRY(plan_restoring(options, compute, logit_rows, restoring, kv));
  // Where full layers drop rows no distance exceeds a window, so positions may go on beyond those
  // of the training.
  const bool drops = !kv.full.restored && !kv.full.coded;
  const bool bounded = drops && kv.full.kept > 0 && kv.full.kept <= config.max_position_embeddings;
  const std::int64_t limit = bounded ? kMaxBoundedContext : config.max_position_embeddings;
  if (options.context < 0 || options.context > limit) {
    return invalid_argument(
        "SessionOptions::context must be 1 to {} tokens for this model but is {}", limit,
        options.context);
  }
  if (options.cache_scope.size() > SessionOptions::kMostScopeBytes) {
    return invalid_argument("SessionOptions::cache_scope must have at most {} bytes but has {}",
                            SessionOptions::kMostScopeBytes, options.cache_scope.size());
  }
  if (options.max_rows < 1) {
    return invalid_argument("SessionOptions::max_rows must be at least 1 but is {}",
                            options.max_rows);
  }
  const std::int64_t context = options.context > 0 ? options.context
                                                   : std::min(config.max_position_embeddings,
                                                              SessionOptions::kDefaultContext);
  const std::int64_t most_rows = restores ? options.window : context;
  const std::int64_t max_rows =
      std::min({std::max(options.max_rows, logit_rows), most_rows, context});
  TimelinePlan plan{.cache = plan_cache(config, context, max_rows, kv),
                    .workspace = {},
                    .context = context,
                    .max_rows = max_rows,
                    .chunk = std::min({options.max_rows, most_rows, context}),
                    .logit_rows = std::min(logit_rows, max_rows),
                    .drafter = {.format = kv_format(options.kv_drafter, compute),
                                .sink = kv.full.coded ? 0 : kv.full.sink,
                                .kept = kv.full.coded ? 0 : kv.full.kept},
                    .encoder = {},
                    .coded = kv.full.coded,
                    .recompute = comparison.recompute};
  plan.cache.grows = options.grow;
  KAKEYA_TRY(plan.cache.check());
  plan.workspace = plan_target_passes(config, max_rows, plan.logit_rows);
  plan.workspace.include_attention(plan.cache);
  if (restores) {
    plan.encoder = plan_row_encoder(*restoring.projection, *restoring.drafter, max_rows);
    plan.workspace.include(plan.encoder->workspace);
  }
  return plan;
}

Footprint timeline_growth(const TimelinePlan& plan, Position tokens) {
  return plan.cache.growth(tokens);
}

Footprint estimate_timeline(const TimelinePlan& plan) {
  Footprint footprint = plan.cache.estimate();
  if (plan.encoder) footprint += estimate_row_encoder(*plan.encoder);
  return footprint;
}

}  // namespace kakeya
