#include "decode/timeline.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "decode/pass.h"

namespace kakeya {

Timeline::Timeline(const Decoder& decoder,
                   Workspace& workspace,
                   const TimelinePlan& plan,
                   KvCache cache,
                   MemoryBudget& budget)
    : decoder_(decoder),
      workspace_(workspace),
      budget_(budget),
      plan_(plan),
      cache_(std::move(cache)) {
  tokens_.reserve(static_cast<std::size_t>(plan_.context));
}

Result<std::unique_ptr<Timeline>> Timeline::create(const Decoder& decoder,
                                                   Workspace& workspace,
                                                   const TimelinePlan& plan,
                                                   MemoryBudget& budget,
                                                   const RestoringWeights& restoring) {
  const ModelConfig& config = decoder.config();
  KAKEYA_TRY(workspace.reserve(plan.workspace));
  KAKEYA_ASSIGN_OR_RETURN(KvCache cache, KvCache::create(plan.cache, budget, workspace.memory()));
  std::unique_ptr<Timeline> timeline(
      new Timeline(decoder, workspace, plan, std::move(cache), budget));
  if (plan.coded) {
    KAKEYA_CHECK(restoring.codes != nullptr);
    timeline->cache_.set_codes(restoring.codes);
  }
  if (!plan.encoder) return timeline;
  KAKEYA_CHECK(restoring.projection != nullptr && restoring.drafter != nullptr);
  KAKEYA_ASSIGN_OR_RETURN(timeline->encoder_,
                          RowEncoder::create(*restoring.projection, *restoring.drafter, workspace,
                                             *plan.encoder, budget));
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    if (!config.owns_kv(l)) continue;
    timeline->cache_.set_decoders(decoder.cache_index(l), restoring.projection->key_decoder(l),
                                  restoring.projection->value_decoder(l));
  }
  return timeline;
}

Result<std::unique_ptr<Timeline>> Timeline::fork(TapSink* sink) {
  std::unique_ptr<Timeline> copy(new Timeline(decoder_, workspace_, plan_, cache_.fork(), budget_));
  copy->tokens_.assign(tokens_.begin(), tokens_.end());  // keeps its room
  copy->tap_sink_ = sink;
  if (encoder_ != nullptr) copy->encoder_ = encoder_->fork();
  if (!tokens_.empty()) KAKEYA_TRY(copy->step_back());
  return copy;
}

void Timeline::restore(std::span<const TokenId> ids, const KvCache::Extent& extent) {
  cache_.restore(extent);
  if (ids.data() != tokens_.data()) {
    tokens_.assign(ids.begin(), ids.end());
    marked_ = 0;
  }
  pass_rows_ = 0;
  taken_ = 0;
}

Status Timeline::check_room(std::int64_t held, std::size_t wanted) const {
  if (static_cast<std::int64_t>(wanted) <= plan_.context - held) return {};
  return error(StatusCode::kResourceExhausted,
               "context of {} tokens is exceeded: {} are in use and {} more are wanted; raise "
               "SessionOptions::context (this model's limit is {})",
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

Status Timeline::check_push(std::span<const TokenId> ids) const {
  KAKEYA_TRY(check(ids));
  return check_room(static_cast<std::int64_t>(tokens_.size()), ids.size());
}

Status Timeline::push(std::span<const TokenId> ids) {
  KAKEYA_TRY(check_push(ids));
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  return {};
}

Status Timeline::reserve(std::int64_t rows) {
  if (encoder_ != nullptr) KAKEYA_TRY(encoder_->reserve());
  if (tap_sink_ != nullptr) KAKEYA_TRY(tap_sink_->reserve_taps(rows));
  return cache_.reserve(rows);
}

std::span<const std::int64_t> Timeline::tap_points() const {
  if (tap_sink_ != nullptr) return tap_sink_->taps();
  if (encoder_ != nullptr) return encoder_->taps();
  return {};
}

void Timeline::take_rows(std::int64_t rows, ConstRows taps, std::uint64_t bytes) {
  bytes_read_ += bytes;
  taps_ = taps;
  pass_rows_ = rows;
  taken_ = 0;
  if (encoder_ != nullptr) bytes_read_ += encoder_->encode(taps, cache_);
}

void Timeline::commit(std::int64_t rows) {
  KAKEYA_CHECK(rows <= pass_rows_ - taken_);
  cache_.commit(rows);
  if (tap_sink_ != nullptr) {
    tap_sink_->commit_taps(rows_from(taps_, taken_, rows));
  }
  taken_ += rows;
}

void Timeline::accept(std::span<const TokenId> ids) {
  commit(std::ssize(ids));
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
}

Position Timeline::last_chunk() const {
  const auto end = static_cast<Position>(tokens_.size());
  const std::int64_t most = workspace_.limited_rows(plan_.chunk);
  const std::int64_t pending = end - cache_.length();
  return pending == 0 ? end : end - ((pending - 1) % most + 1);
}

Status Timeline::run_until(Position end, std::int64_t chunk, const PrefillProgress& progress) {
  const Position start = cache_.length();
  // A last token that is left is not counted.
  const Position all = std::max(end, static_cast<Position>(tokens_.size()) - 1);
  const std::int64_t most = chunk > 0 ? std::min(chunk, plan_.max_rows) : plan_.chunk;
  while (cache_.length() < end) {
    KAKEYA_TRY(run_chunk(std::min(end - cache_.length(), workspace_.limited_rows(most))));
    if (progress && !progress(cache_.length() - start, all - start) && cache_.length() < all) {
      return error(StatusCode::kCancelled, "cancelled after {} of {} tokens", cache_.length(), all);
    }
  }
  return {};
}

Status Timeline::run_chunk(std::int64_t rows) {
  Pass pass(workspace_);
  KAKEYA_TRY(pass.add(*this, pending().first(static_cast<std::size_t>(rows)), {}, 0));
  KAKEYA_TRY(pass.run());
  commit(rows);
  return finish_chunk();
}

// Many rows share the reading of weights, but each has V logits.
std::int64_t Timeline::most_logit_rows() const {
  constexpr std::int64_t kMostLogits = std::int64_t{4} << 20;
  return std::clamp<std::int64_t>(kMostLogits / decoder_.config().vocab_size, 1, plan_.chunk);
}

Status Timeline::run_with_rows(RowKind kind, const RowCallback& look) {
  const bool hidden = kind == RowKind::kHidden;
  const std::int64_t most =
      std::min<std::int64_t>(hidden ? plan_.chunk : most_logit_rows(), std::ssize(pending()));
  WorkspacePlan wanted = plan_target_passes(decoder_.config(), most, hidden ? 0 : most);
  if (hidden) wanted.hidden_bytes = float_bytes(most, decoder_.config().hidden_size);
  KAKEYA_ASSIGN_OR_RETURN(const auto room, workspace_.reserve_for_now(wanted));
  while (!pending().empty()) {
    const std::int64_t rows =
        std::min<std::int64_t>(std::ssize(pending()), workspace_.limited_rows(most));
    if (Status seen = run_and_look(kind, rows, look); !seen) {
      // Whoever goes on starts from a pending token.
      if (pending().empty()) KAKEYA_TRY(step_back());
      return seen;
    }
  }
  return {};
}

Status Timeline::run_and_look(RowKind kind, std::int64_t rows, const RowCallback& look) {
  const Position first = cache_.length();
  const bool hidden = kind == RowKind::kHidden;
  Pass pass(workspace_);
  if (hidden) pass.keep_hidden();
  const auto ids = pending().first(static_cast<std::size_t>(rows));
  KAKEYA_TRY(pass.add(*this, ids, {}, hidden ? 0 : rows));
  KAKEYA_TRY(pass.run());
  commit(rows);
  const HostRows given = hidden ? pass.host_hidden(0) : pass.host_logits(0);
  for (std::int64_t i = 0; i < rows; ++i) KAKEYA_TRY(look(first + i, given.row(i)));
  return finish_chunk();
}

Status Timeline::finish_chunk() {
  return tap_sink_ == nullptr ? Status() : tap_sink_->finish_taps();
}

Status Timeline::check_length(Position length) const {
  if (length >= 0 && length <= static_cast<Position>(tokens_.size())) return {};
  return invalid_argument("cannot truncate {} tokens to {}", tokens_.size(), length);
}

Status Timeline::roll_back(Position length) {
  if (tap_sink_ != nullptr) KAKEYA_TRY(tap_sink_->check_truncate(length));
  KAKEYA_TRY(cache_.truncate(length));
  if (tap_sink_ != nullptr) tap_sink_->truncate(length);
  pass_rows_ = 0;
  taken_ = 0;
  return {};
}

Status Timeline::truncate(Position length) {
  KAKEYA_TRY(check_length(length));
  KAKEYA_TRY(roll_back(std::min(length, cache_.length())));
  tokens_.resize(static_cast<std::size_t>(length));
  marked_ = std::min(marked_, length);
  return {};
}

Status Timeline::rewind(Position length) {
  KAKEYA_TRY(check_length(length));
  if (length == static_cast<Position>(tokens_.size())) return {};
  const Position run = std::max<Position>(0, length - 1);
  KAKEYA_TRY(roll_back(std::min(run, cache_.length())));
  tokens_.resize(static_cast<std::size_t>(length));
  marked_ = std::min(marked_, length);
  return {};
}

void Timeline::forget() {
  KAKEYA_CHECK(roll_back(0).has_value());  // always possible
}

Status Timeline::step_back() {
  if (tokens_.empty()) return error(StatusCode::kFailedPrecondition, "there is no token");
  KAKEYA_TRY(roll_back(std::min(static_cast<Position>(tokens_.size()) - 1, cache_.length())));
  return {};
}

// Where memory is the host's, the pass writes to where its output is wanted.
Status Timeline::run_for_host(Pass& pass, std::int64_t rows, const HostOutput& output) {
  MemorySpace& memory = workspace_.memory();
  ForwardOutput own{.logits = {}, .tap_points = output.tap_points, .taps = {}};
  if (memory.is_host()) {
    own.logits = {DevicePointer<float>(output.logits.data), output.logits.count,
                  output.logits.width};
    own.taps = {DevicePointer<float>(output.taps.data), rows, output.taps.width};
    return pass.run_into(own);
  }
  KAKEYA_TRY(
      workspace_.reserve({.executor = workspace_.plan().executor,
                          .logit_bytes = float_bytes(output.logits.count, output.logits.width),
                          .tap_bytes = float_bytes(rows, output.taps.width)}));
  own.logits = workspace_.logits(output.logits.count, output.logits.width);
  own.taps = workspace_.taps(rows, output.taps.width);
  KAKEYA_TRY(pass.run_into(own));
  const auto fetch = [&](const Rows& from, const HostRows& to) {
    if (to.data == nullptr) return;
    download(memory, DevicePointer<const float>(from.data),
             std::span(to.data, static_cast<std::size_t>(from.count * from.width)));
  };
  fetch(own.logits, output.logits);
  fetch(own.taps, output.taps);
  return {};
}

Status Timeline::forward(std::span<const TokenId> ids, const HostOutput& output) {
  if (cache_.length() != static_cast<Position>(tokens_.size())) {
    return error(StatusCode::kFailedPrecondition, "{} tokens are still pending",
                 static_cast<Position>(tokens_.size()) - cache_.length());
  }
  if (encoder_ != nullptr && !output.tap_points.empty()) {
    return error(StatusCode::kUnimplemented,
                 "layer outputs cannot be given where rows are restored");
  }
  KAKEYA_TRY(push(ids));
  // These taps are the caller's.
  TapSink* const sink = std::exchange(tap_sink_, nullptr);
  Pass pass(workspace_);
  Status done = pass.add(*this, ids, {}, output.logits.count);
  if (done) done = run_for_host(pass, std::ssize(ids), output);
  if (done) {
    commit(std::ssize(ids));
  } else {
    tokens_.resize(tokens_.size() - ids.size());
  }
  tap_sink_ = sink;
  return done;
}

std::vector<std::int32_t> Timeline::last_routing(std::int64_t rows) const {
  Arena arena = workspace_.arena();
  const Routing routing = Activations::layout(arena, decoder_.config(), rows).routing;
  if (!routing.experts) return {};
  std::vector<std::int32_t> experts(static_cast<std::size_t>(rows * routing.top_k));
  download(workspace_.memory(), DevicePointer<const std::int32_t>(routing.experts),
           std::span(experts));
  return experts;
}

Footprint Timeline::footprint() const {
  Footprint footprint = cache_.footprint();
  if (encoder_ != nullptr) footprint += encoder_->footprint();
  return footprint;
}

}  // namespace kakeya
