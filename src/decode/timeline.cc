#include "decode/timeline.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {
namespace {

// Positions are exact as f32 up to here, as RoPE takes them.
constexpr std::int64_t kMaxBoundedContext = std::int64_t{1} << 24;

KvFormat kv_format(KvType type, Compute compute) {
  switch (type) {
    case KvType::kAuto:
      break;
    case KvType::kF32:
      return KvFormat::kF32;
    case KvType::kBf16:
      return KvFormat::kBf16;
    case KvType::kInt8:
      return KvFormat::kInt8;
    case KvType::kInt4:
      return KvFormat::kInt4;
    case KvType::kRotatedInt4:
      return KvFormat::kRotatedInt4;
    case KvType::kD4:
      return KvFormat::kD4;
    case KvType::kE8:
      return KvFormat::kE8;
  }
  return compute == Compute::kF32 ? KvFormat::kF32 : KvFormat::kBf16;
}

Result<KvLayerPlan> plan_layers(const SessionOptions& options,
                                KvType type,
                                Evicted evicted,
                                Compute compute) {
  KvLayerPlan plan{.format = kv_format(type, compute)};
  if (evicted == Evicted::kKeep) return plan;
  if (options.window == 0) {
    return invalid_argument("rows can be dropped only behind a window; set it with --window");
  }
  plan.sink = options.sink;
  plan.kept = options.window;
  return plan;
}

Result<KvPlan> plan_kv(const SessionOptions& options, Compute compute) {
  if (options.sink < 0 || options.window < 0) {
    return invalid_argument("sink and window must be 0 or more but are {} and {}", options.sink,
                            options.window);
  }
  KvPlan plan{.full = {}, .sliding = {}, .pairs = options.kv_pairs};
  KAKEYA_ASSIGN_OR_RETURN(plan.full,
                          plan_layers(options, options.kv_full, options.evicted_full, compute));
  KAKEYA_ASSIGN_OR_RETURN(
      plan.sliding, plan_layers(options, options.kv_sliding, options.evicted_sliding, compute));
  return plan;
}

std::uint64_t arena_bytes(const ModelConfig& config, std::int64_t max_rows) {
  Arena measure;
  Activations::layout(measure, config, max_rows);
  return measure.used();
}

std::uint64_t logits_bytes(const ModelConfig& config, const TimelinePlan& plan) {
  return static_cast<std::uint64_t>(plan.logit_rows * config.vocab_size) * sizeof(float);
}

}  // namespace

Result<TimelinePlan> plan_timeline(const ModelConfig& config,
                                   const SessionOptions& options,
                                   Compute compute,
                                   std::int64_t logit_rows) {
  KAKEYA_ASSIGN_OR_RETURN(const KvPlan kv, plan_kv(options, compute));
  // Where full layers drop rows no distance exceeds a window, so positions may go on beyond those
  // of the training.
  const bool bounded = kv.full.kept > 0 && kv.full.kept <= config.max_position_embeddings;
  const std::int64_t limit = bounded ? kMaxBoundedContext : config.max_position_embeddings;
  if (options.context < 0 || options.context > limit) {
    return invalid_argument("context must be 1 to {} tokens for this model but is {}", limit,
                            options.context);
  }
  if (options.max_rows < 1) {
    return invalid_argument("max_rows must be at least 1 but is {}", options.max_rows);
  }
  const std::int64_t context = options.context > 0 ? options.context
                                                   : std::min(config.max_position_embeddings,
                                                              SessionOptions::kDefaultContext);
  const std::int64_t max_rows = std::min(std::max(options.max_rows, logit_rows), context);
  TimelinePlan plan{.cache = plan_cache(config, context, max_rows, kv),
                    .executor = plan_executor(config, max_rows),
                    .context = context,
                    .max_rows = max_rows,
                    .chunk = std::min(options.max_rows, context),
                    .logit_rows = std::min(logit_rows, max_rows),
                    .drafter = {.format = kv_format(options.kv_drafter, compute),
                                .sink = kv.full.sink,
                                .kept = kv.full.kept}};
  KAKEYA_TRY(plan.cache.check());
  return plan;
}

Footprint estimate_timeline(const ModelConfig& config,
                            const TimelinePlan& plan,
                            const Backend& backend) {
  Footprint footprint = plan.cache.estimate();
  footprint.reserved_bytes(MemoryClass::kActivations) +=
      MemoryBudget::charged_bytes(arena_bytes(config, plan.max_rows)) +
      backend.executor_bytes(plan.executor);
  footprint.reserved_bytes(MemoryClass::kLogits) +=
      MemoryBudget::charged_bytes(logits_bytes(config, plan));
  return footprint;
}

Timeline::Timeline(const Decoder& decoder, const TimelinePlan& plan, KvCache cache)
    : decoder_(decoder), plan_(plan), cache_(std::move(cache)) {
  tokens_.reserve(static_cast<std::size_t>(plan.context));
}

Result<std::unique_ptr<Timeline>> Timeline::create(const Decoder& decoder,
                                                   Backend& backend,
                                                   const TimelinePlan& plan,
                                                   MemoryBudget& budget) {
  const ModelConfig& config = decoder.config();
  KAKEYA_ASSIGN_OR_RETURN(KvCache cache, KvCache::create(plan.cache, budget));
  std::unique_ptr<Timeline> timeline(new Timeline(decoder, plan, std::move(cache)));
  KAKEYA_ASSIGN_OR_RETURN(timeline->arena_, budget.allocate(MemoryClass::kActivations,
                                                            arena_bytes(config, plan.max_rows)));
  Arena arena(timeline->arena_.data());
  timeline->activations_ = Activations::layout(arena, config, plan.max_rows);
  KAKEYA_ASSIGN_OR_RETURN(timeline->logits_,
                          budget.allocate(MemoryClass::kLogits, logits_bytes(config, plan)));
  timeline->executor_bytes_ = backend.executor_bytes(plan.executor);
  KAKEYA_ASSIGN_OR_RETURN(timeline->executor_, backend.create_executor(plan.executor, budget));
  return timeline;
}

Status Timeline::check_room(std::int64_t held, std::size_t wanted) const {
  if (static_cast<std::int64_t>(wanted) <= plan_.context - held) return {};
  return error(StatusCode::kResourceExhausted,
               "context of {} tokens is exceeded: {} are in use and {} more are wanted; raise it "
               "with --ctx (this model's limit is {})",
               plan_.context, held, wanted, decoder_.config().max_position_embeddings);
}

Status Timeline::check(std::span<const TokenId> ids) const {
  const std::int64_t vocab_size = decoder_.config().vocab_size;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return invalid_argument("token id must be 0 to {} but is {} (at index {})", vocab_size - 1,
                              ids[i], i);
    }
  }
  return check_room(0, ids.size());
}

Status Timeline::push(std::span<const TokenId> ids) {
  KAKEYA_TRY(check(ids));
  KAKEYA_TRY(check_room(static_cast<std::int64_t>(tokens_.size()), ids.size()));
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  return {};
}

// One pass over `ids`, which follow the committed tokens; commits nothing.
Status Timeline::run(std::span<const TokenId> ids, Rows logits) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  KAKEYA_TRY(cache_.reserve(rows));
  ForwardInput input{.ids = ids, .taps = {}};
  ForwardOutput output{.logits = logits, .taps = {}};
  if (tap_sink_ != nullptr) {
    input.taps = tap_sink_->taps();
    output.taps = tap_sink_->reserve_taps(rows);
  }
  decoder_.forward(input, cache_, *executor_, activations_, output);
  unaccepted_ = 0;
  return {};
}

void Timeline::commit(std::int64_t rows) {
  cache_.commit(rows);
  if (tap_sink_ != nullptr) tap_sink_->commit_taps(rows);
}

Result<Rows> Timeline::verify(std::span<const TokenId> drafts) {
  const auto pending = static_cast<Position>(tokens_.size()) - cache_.length();
  if (pending != 1) {
    return error(StatusCode::kFailedPrecondition, "expected one pending token, got {}", pending);
  }
  const auto rows = static_cast<std::int64_t>(drafts.size()) + 1;
  if (rows > plan_.logit_rows) {
    return invalid_argument("a block must have at most {} drafts but has {}", plan_.logit_rows - 1,
                            drafts.size());
  }
  // tokens_ holds the block for the pass: its memory is there already, and so is the pending token.
  tokens_.insert(tokens_.end(), drafts.begin(), drafts.end());
  const Rows logits{logits_.as<float>(), rows, decoder_.config().vocab_size};
  const Status done = run(std::span<const TokenId>(tokens_).last(drafts.size() + 1), logits);
  tokens_.resize(tokens_.size() - drafts.size());
  KAKEYA_TRY(done);
  has_logits_ = false;
  unaccepted_ = rows;
  return logits;
}

void Timeline::accept(TokenId id) {
  KAKEYA_CHECK(unaccepted_ > 0);
  --unaccepted_;
  commit(1);
  tokens_.push_back(id);
}

Status Timeline::run_pending(std::int64_t chunk, const PrefillProgress& progress) {
  const Position start = cache_.length();
  const std::int64_t most = chunk > 0 ? std::min(chunk, plan_.max_rows) : plan_.chunk;
  while (cache_.length() < static_cast<Position>(tokens_.size())) {
    const auto begin = static_cast<std::size_t>(cache_.length());
    const std::size_t rows = std::min(tokens_.size() - begin, static_cast<std::size_t>(most));
    const bool last = begin + rows == tokens_.size();
    const Rows logits{logits_.as<float>(), last ? 1 : 0, decoder_.config().vocab_size};
    KAKEYA_TRY(run(std::span<const TokenId>(tokens_).subspan(begin, rows), logits));
    commit(static_cast<std::int64_t>(rows));
    if (tap_sink_ != nullptr) tap_sink_->finish_taps();
    has_logits_ = last;
    if (progress &&
        !progress(cache_.length() - start, static_cast<std::int64_t>(tokens_.size()) - start) &&
        !last) {
      return error(StatusCode::kCancelled, "cancelled after {} of {} tokens", cache_.length(),
                   tokens_.size());
    }
  }
  return {};
}

std::span<float> Timeline::logits() {
  if (!has_logits_ || cache_.length() != static_cast<Position>(tokens_.size())) return {};
  return {logits_.as<float>(), static_cast<std::size_t>(decoder_.config().vocab_size)};
}

Status Timeline::check_length(Position length) const {
  if (length >= 0 && length <= static_cast<Position>(tokens_.size())) return {};
  return invalid_argument("cannot truncate {} tokens to {}", tokens_.size(), length);
}

Status Timeline::roll_back(Position length) {
  if (tap_sink_ != nullptr) KAKEYA_TRY(tap_sink_->check_truncate(length));
  KAKEYA_TRY(cache_.truncate(length));
  if (tap_sink_ != nullptr) tap_sink_->truncate(length);
  unaccepted_ = 0;
  return {};
}

Status Timeline::truncate(Position length) {
  KAKEYA_TRY(check_length(length));
  KAKEYA_TRY(roll_back(std::min(length, cache_.length())));
  tokens_.resize(static_cast<std::size_t>(length));
  has_logits_ = false;
  return {};
}

Status Timeline::rewind(Position length) {
  KAKEYA_TRY(check_length(length));
  if (length == static_cast<Position>(tokens_.size())) return {};
  const Position run = std::max<Position>(0, length - 1);
  KAKEYA_TRY(roll_back(std::min(run, cache_.length())));
  tokens_.resize(static_cast<std::size_t>(length));
  has_logits_ = false;
  return {};
}

Status Timeline::step_back() {
  if (tokens_.empty()) return error(StatusCode::kFailedPrecondition, "there is no token");
  KAKEYA_TRY(roll_back(std::min(static_cast<Position>(tokens_.size()) - 1, cache_.length())));
  has_logits_ = false;
  return {};
}

Status Timeline::forward(std::span<const TokenId> ids,
                         std::span<const std::int64_t> taps,
                         const ForwardOutput& output) {
  if (cache_.length() != static_cast<Position>(tokens_.size())) {
    return error(StatusCode::kFailedPrecondition, "{} tokens are still pending",
                 static_cast<Position>(tokens_.size()) - cache_.length());
  }
  KAKEYA_TRY(push(ids));
  if (const Status reserved = cache_.reserve(static_cast<std::int64_t>(ids.size())); !reserved) {
    tokens_.resize(tokens_.size() - ids.size());
    return reserved;
  }
  decoder_.forward({.ids = ids, .taps = taps}, cache_, *executor_, activations_, output);
  cache_.commit(static_cast<std::int64_t>(ids.size()));
  has_logits_ = false;
  return {};
}

std::span<const std::int32_t> Timeline::last_routing(std::int64_t rows) const {
  const Routing& routing = activations_.routing;
  if (routing.experts == nullptr) return {};
  return {routing.experts, static_cast<std::size_t>(rows * routing.top_k)};
}

Footprint Timeline::footprint() const {
  Footprint footprint = cache_.footprint();
  const std::uint64_t activations = arena_.size() + executor_bytes_;
  footprint.reserved_bytes(MemoryClass::kActivations) += activations;
  footprint.live_bytes(MemoryClass::kActivations) += activations;
  footprint.reserved_bytes(MemoryClass::kLogits) += logits_.size();
  footprint.live_bytes(MemoryClass::kLogits) += logits_.size();
  return footprint;
}

}  // namespace kakeya
