// The part of an engine that makes sessions, their timelines and schedulers, estimates and charges
// their memory, and fingerprints them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "runtime/engine_impl.h"
#include "runtime/exact_rows.h"
#include "runtime/scheduler_impl.h"
#include "runtime/session_impl.h"
#include "sampling/sampler.h"

namespace kakeya {
namespace {

class ChargedBuffer final : public MemoryCharge {
 public:
  ChargedBuffer(std::shared_ptr<const EngineImpl> engine, Buffer buffer)
      : engine_(std::move(engine)), buffer_(std::move(buffer)) {}

 private:
  const std::shared_ptr<const EngineImpl> engine_;  // whose budget gets it back
  const Buffer buffer_;
};

}  // namespace

Result<std::unique_ptr<MemoryCharge>> EngineImpl::charge(MemoryClass memory_class,
                                                         std::uint64_t bytes) const {
  KAKEYA_ASSIGN_OR_RETURN(Buffer buffer, budget_.charge_foreign(memory_class, bytes));
  return std::make_unique<ChargedBuffer>(shared_from_this(), std::move(buffer));
}

Result<TimelinePlan> EngineImpl::plan_session(const SessionOptions& options,
                                              std::int64_t logit_rows,
                                              const Projection* projection,
                                              const Comparison& comparison) const {
  return plan_timeline(config_, options, options_.compute, logit_rows,
                       restoring_configs(projection), comparison);
}

std::int64_t EngineImpl::block_rows() const {
  std::int64_t rows = draft_choice_.ngram ? SessionDrafts::kNgramLength + 1 : 1;
  if (drafter_config_ && drafter_drafts_) rows = std::max(rows, drafter_config_->block_size);
  return std::min(rows, exact_rows_);
}

Status EngineImpl::keep_blocks_exact() {
  constexpr std::int64_t kMostProbed = 8;  // a GPU that keeps more is not known
  const std::int64_t wanted = block_rows();
  if (backend_->is_row_invariant() || options_.draft.allow_inexact || wanted <= 1) return {};
  KAKEYA_ASSIGN_OR_RETURN(exact_rows_, count_exact_rows(*this, std::min(wanted, kMostProbed)));
  if (exact_rows_ >= wanted) return {};
  const auto note = [&](const std::string& text) {
    if (options_.on_note) options_.on_note(text);
  };
  if (exact_rows_ > 1) {
    note(fmt::format(
        "backend {} was found to keep the bits of blocks of up to {} rows of this model: "
        "at most {} tokens are drafted at a time",
        backend_->name(), exact_rows_, exact_rows_ - 1));
    return {};
  }
  const std::string why = fmt::format(
      "backend {} gives a row of this model other bits among others than alone, so that drafts "
      "could change the output",
      backend_->name());
  if (options_.draft.source != "auto") {
    return error(StatusCode::kFailedPrecondition,
                 "{}: expected no drafts, or DraftOptions::allow_inexact", why);
  }
  note(why + ": nothing is drafted");
  draft_choice_.ngram = false;
  drafter_drafts_ = false;
  return {};
}

std::int64_t EngineImpl::verify_rows(const SessionOptions& options) const {
  return options.drafting ? block_rows() : 1;
}

std::string EngineImpl::draft_fingerprint(const SessionOptions& options) const {
  if (!options.drafting) return "none";
  // N-grams keep nothing.
  if (drafter_ == nullptr || !drafter_drafts_) return "none";
  return fmt::format("{} embeddings {}", drafter_fingerprint_, drafter_->embed_scale());
}

std::string EngineImpl::projection_fingerprint(const TimelinePlan& plan,
                                               const Projection* projection) const {
  if (!plan.encoder) return "none";
  return fmt::format("{} {:016x} features of {} embeddings {}",
                     projection_features_name(plan.encoder->features), projection->fingerprint(),
                     drafter_fingerprint_, drafter_->embed_scale());
}

Result<std::shared_ptr<const KvCodes>> EngineImpl::codes_of(const TimelinePlan& plan) {
  if (!plan.coded) return nullptr;
  if (!backend_->reads_codes()) {
    return error(StatusCode::kUnimplemented,
                 "backend {} does not read calibrated codes of the KV cache: expected cpu or ref",
                 backend_->name());
  }
  const std::lock_guard lock(codes_mutex_);
  if (!statistics_) KAKEYA_TRY(load_statistics());
  for (const auto& [bits, codes] : codes_) {
    if (bits == *plan.coded) return codes;
  }
  KAKEYA_ASSIGN_OR_RETURN(auto codes, KvCodes::create(*statistics_, *plan.coded, budget_));
  return codes_.emplace_back(*plan.coded, std::move(codes)).second;
}

std::uint64_t EngineImpl::codes_bytes(const TimelinePlan& plan) const {
  const std::lock_guard lock(codes_mutex_);
  if (!plan.coded || !statistics_) return 0;
  for (const auto& [bits, codes] : codes_) {
    if (bits == *plan.coded) return 0;
  }
  return MemoryBudget::charged_bytes(KvCodes::bytes(*statistics_));
}

std::int64_t EngineImpl::session_context(const SessionOptions& options) const {
  return options.context > 0
             ? options.context
             : std::min(config_.max_position_embeddings, SessionOptions::kDefaultContext);
}

Result<std::unique_ptr<Timeline>> EngineImpl::create_timeline(const SessionOptions& options,
                                                              std::int64_t logit_rows,
                                                              const Projection* projection,
                                                              const Comparison& comparison) {
  if (projection == nullptr) projection = projection_.get();
  KAKEYA_ASSIGN_OR_RETURN(const TimelinePlan plan,
                          plan_session(options, logit_rows, projection, comparison));
  KAKEYA_ASSIGN_OR_RETURN(auto codes, codes_of(plan));
  return Timeline::create(
      *decoder_, *workspace_, plan, budget_,
      {.projection = projection, .drafter = drafter_.get(), .codes = std::move(codes)});
}

Result<std::unique_ptr<Session>> EngineImpl::create_session(const SessionOptions& options) {
  return create_session(options, {});
}

Result<EngineImpl::SessionPlan> EngineImpl::plan_parts(const SessionOptions& options,
                                                       const Projection* projection,
                                                       const Comparison& comparison) const {
  SessionPlan parts;
  KAKEYA_ASSIGN_OR_RETURN(parts.timeline,
                          plan_session(options, verify_rows(options), projection, comparison));
  parts.workspace = parts.timeline.workspace;
  if (!options.drafting || drafter_ == nullptr || !drafter_drafts_) return parts;
  parts.dflash = plan_dflash(drafter_->config(), parts.timeline);
  KAKEYA_TRY(parts.dflash->context.check());
  parts.workspace.include(parts.dflash->workspace);
  return parts;
}

Result<SessionNeed> EngineImpl::session_need(const SessionOptions& options,
                                             bool logprobs,
                                             std::int64_t tokens) const {
  KAKEYA_ASSIGN_OR_RETURN(const SessionPlan parts, plan_parts(options, projection_.get(), {}));
  SessionNeed need{.session = estimate_timeline(parts.timeline), .workspace = parts.workspace};
  need.session += timeline_growth(parts.timeline, tokens);
  need.session.reserved_bytes(MemoryClass::kCodes) += codes_bytes(parts.timeline);
  if (parts.dflash) {
    need.session += estimate_dflash(drafter_->config(), *parts.dflash);
    need.session += parts.dflash->context.growth(tokens);
  }
  std::uint64_t& logits = need.session.reserved_bytes(MemoryClass::kLogits);
  logits += Sampler::bytes(config_.vocab_size);
  if (logprobs) {
    const auto width = static_cast<std::uint64_t>(config_.vocab_size);
    logits += MemoryBudget::charged_bytes(width * sizeof(float));
  }
  return need;
}

Result<Footprint> EngineImpl::estimate_session(const SessionOptions& options) const {
  KAKEYA_ASSIGN_OR_RETURN(const SessionNeed need, session_need(options, false, 0));
  return need.session;
}

DraftKind EngineImpl::draft_kind() const {
  if (drafter_ != nullptr && drafter_drafts_) return DraftKind::kDflash;
  return draft_choice_.ngram ? DraftKind::kNgram : DraftKind::kNone;
}

Result<std::unique_ptr<Session>> EngineImpl::create_session(const SessionOptions& options,
                                                            const SessionExtras& extras) {
  const Projection* projection =
      extras.projection == nullptr ? projection_.get() : extras.projection;
  KAKEYA_ASSIGN_OR_RETURN(const SessionPlan parts,
                          plan_parts(options, projection, extras.comparison));
  const TimelinePlan& plan = parts.timeline;
  KAKEYA_TRY(workspace_->reserve(parts.workspace));  // for both, so that it grows once
  KAKEYA_ASSIGN_OR_RETURN(auto codes, codes_of(plan));
  KAKEYA_ASSIGN_OR_RETURN(
      std::unique_ptr<Timeline> timeline,
      Timeline::create(
          *decoder_, *workspace_, plan, budget_,
          {.projection = projection, .drafter = drafter_.get(), .codes = std::move(codes)}));
  KAKEYA_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(config_.vocab_size, budget_));
  std::unique_ptr<DflashSource> dflash;
  if (parts.dflash) {
    KAKEYA_ASSIGN_OR_RETURN(dflash,
                            DflashSource::create(*drafter_, *workspace_, *parts.dflash, budget_));
    timeline->set_tap_sink(dflash.get());
  }
  std::unique_ptr<SessionDrafts> drafts;
  if (dflash != nullptr || (options.drafting && draft_choice_.ngram)) {
    drafts = std::make_unique<SessionDrafts>(std::move(dflash), draft_choice_.ngram);
    if (extras.wrapper) drafts->wrap(extras.wrapper);
  }
  return std::make_unique<SessionImpl>(
      std::move(timeline), std::make_unique<Sampler>(std::move(sampler)), std::move(drafts),
      SessionSurroundings{.owner = weak_from_this().lock(),
                          .budget = budget_,
                          .draft_costs = draft_costs_,
                          .prompt_cache = prompt_cache_.get(),
                          .model_stop_ids = stop_ids_,
                          .suppressed = generation_config_.suppress_tokens,
                          .tables = tables_.get()},
      key_of(options, plan, projection));
}

SnapshotKey EngineImpl::key_of(const SessionOptions& options,
                               const TimelinePlan& plan,
                               const Projection* projection) const {
  SnapshotKey key = session_key({.model = model_fingerprint_,
                                 .drafter = draft_fingerprint(options),
                                 .projection = projection_fingerprint(plan, projection),
                                 .tokenizer = text_.tokenizer_fingerprint(),
                                 .chat_template = text_.template_fingerprint()},
                                options_.compute, backend_->name(), plan);
  if (plan.coded && statistics_) {
    key["statistics"] = fmt::format("k{}v{} {:016x}", plan.coded->keys, plan.coded->values,
                                    statistics_->fingerprint);
  }
  if (!options.cache_scope.empty()) key[kScopeName] = options.cache_scope;
  return key;
}

CachedPrefix EngineImpl::cached_prefix(std::span<const TokenId> ids,
                                       const SessionOptions& options) const {
  if (prompt_cache_ == nullptr) return {};
  const auto parts = plan_parts(options, projection_.get(), {});
  if (!parts) return {};
  return prompt_cache_->look_up(key_of(options, parts->timeline, projection_.get()), ids);
}

std::uint64_t EngineImpl::forget_prefix(std::span<const TokenId> ids,
                                        std::int64_t keep,
                                        const SessionOptions& options) {
  if (prompt_cache_ == nullptr) return 0;
  const auto parts = plan_parts(options, projection_.get(), {});
  if (!parts) return 0;
  return prompt_cache_->forget(key_of(options, parts->timeline, projection_.get()), ids, keep);
}

Result<Workspace::Reservation> EngineImpl::reserve_passes(std::int64_t max_sequences,
                                                          std::int64_t max_rows,
                                                          std::int64_t logit_rows) {
  WorkspacePlan plan = plan_target_passes(config_, max_rows, logit_rows);
  // A projection reads the taps of a drafter that does not draft.
  if (drafter_ != nullptr) plan.tap_bytes = tap_bytes(drafter_->config(), max_rows);
  if (drafter_ != nullptr && drafter_drafts_) {
    // Each sequence's block has a row more than drafts.
    const std::int64_t blocks = logit_rows + max_sequences;
    plan.include(plan_drafter_passes(drafter_->config(), blocks, logit_rows, max_rows));
  }
  plan.executor.max_sequences = max_sequences;
  return workspace_->reserve_for_now(plan);
}

Result<std::unique_ptr<Scheduler>> EngineImpl::create_scheduler(const SchedulerOptions& options) {
  return SchedulerImpl::create(*this, options, weak_from_this().lock());
}

Result<std::unique_ptr<Session>> EngineImpl::create_session() {
  return create_session(options_.session);
}

}  // namespace kakeya
