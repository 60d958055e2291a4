#include "runtime/engine_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "decode/sampler.h"
#include "model/checkpoint_source.h"
#include "model/random_source.h"
#include "model/weight_loader.h"
#include "runtime/session_impl.h"

namespace kakeya {
namespace {

Result<std::unique_ptr<Backend>> make_backend(const EngineOptions& options) {
  return create_backend(
      {.name = options.backend,
       .instruction_set = options.instruction_set,
       .threads = {.num_threads = options.num_threads, .pin = options.pin_threads}});
}

}  // namespace

// Everything up to the weights: configuration, backend.
Result<std::unique_ptr<EngineImpl>> EngineImpl::prepare(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(ModelConfig config, load_model_config(options.model_dir));
  std::unique_ptr<EngineImpl> engine(new EngineImpl(std::move(config), options));
  KAKEYA_ASSIGN_OR_RETURN(engine->generation_config_, load_generation_config(options.model_dir));
  // An id outside the vocabulary cannot be drawn anyway.
  std::erase_if(engine->generation_config_.suppress_tokens,
                [&](TokenId id) { return id < 0 || id >= engine->config_.vocab_size; });
  KAKEYA_ASSIGN_OR_RETURN(engine->backend_, make_backend(options));
  engine->collect_stop_ids();
  KAKEYA_ASSIGN_OR_RETURN(engine->draft_choice_,
                          resolve_draft_choice(options.draft.source, options.model_dir));
  KAKEYA_TRY(engine->prepare_drafter());
  return engine;
}

Status EngineImpl::prepare_drafter() {
  const std::string& dir = draft_choice_.drafter_dir;
  if (dir.empty()) return {};
  KAKEYA_ASSIGN_OR_RETURN(drafter_config_, load_drafter_config(dir));
  if (const Status fits = check_drafter_fits(*drafter_config_, config_); !fits) {
    return Unexpected(fits.error().with_context(dir));
  }
  return {};
}

Result<EngineImpl::Sources> EngineImpl::open_sources() const {
  Sources sources;
  KAKEYA_ASSIGN_OR_RETURN(sources.target, CheckpointSource::open(options_.model_dir, config_));
  if (drafter_config_) {
    KAKEYA_ASSIGN_OR_RETURN(
        sources.drafter,
        CheckpointSource::open(draft_choice_.drafter_dir, expected_tensors(*drafter_config_)));
  }
  return sources;
}

Result<std::unique_ptr<EngineImpl>> EngineImpl::open(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> engine, prepare(options));
  KAKEYA_ASSIGN_OR_RETURN(engine->text_, ModelText::load(options.model_dir));
  KAKEYA_ASSIGN_OR_RETURN(Sources sources, engine->open_sources());
  KAKEYA_TRY(engine->load(std::move(sources)));
  return engine;
}

Result<std::unique_ptr<EngineImpl>> EngineImpl::open_random(
    const ModelConfig& config,
    const EngineOptions& options,
    const std::optional<DrafterConfig>& drafter) {
  std::unique_ptr<EngineImpl> engine(new EngineImpl(config, options));
  engine->drafter_config_ = drafter;
  KAKEYA_ASSIGN_OR_RETURN(engine->backend_, make_backend(options));
  engine->collect_stop_ids();
  ThreadPool pool({.num_threads = options.num_threads, .pin = false});
  Sources sources{
      .target = std::make_unique<RandomSource>(expected_tensors(config), /*seed=*/1, pool),
      .drafter = nullptr};
  if (drafter) {
    sources.drafter = std::make_unique<RandomSource>(expected_tensors(*drafter), /*seed=*/2, pool);
  }
  KAKEYA_TRY(engine->load(std::move(sources)));
  engine->source_.reset();  // it refers to the pool
  return engine;
}

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> engine, EngineImpl::open(options));
  return engine;
}

Result<Footprint> Engine::estimate(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> engine, EngineImpl::prepare(options));
  KAKEYA_ASSIGN_OR_RETURN(const EngineImpl::Sources sources, engine->open_sources());
  std::uint64_t source_bytes = 0;
  return engine->estimate(sources, source_bytes);
}

// The weights and one session of options_.session. `source_bytes` is the size of the tensors.
Result<Footprint> EngineImpl::estimate(const Sources& sources, std::uint64_t& source_bytes) {
  WeightLoader measure(*sources.target, *backend_);
  KAKEYA_ASSIGN_OR_RETURN(const auto decoder, load_decoder(config_, measure, options_.compute));
  KAKEYA_ASSIGN_OR_RETURN(
      const TimelinePlan plan,
      plan_timeline(config_, options_.session, options_.compute, verify_rows(options_.session)));
  Footprint footprint = estimate_timeline(config_, plan, *backend_);
  footprint.reserved_bytes(MemoryClass::kWeights) += measure.charged_bytes();
  footprint.reserved_bytes(MemoryClass::kLogits) += Sampler::bytes(config_.vocab_size);
  source_bytes = measure.source_bytes();
  if (!drafter_config_) return footprint;
  WeightLoader drafter_measure(*sources.drafter, *backend_);
  KAKEYA_ASSIGN_OR_RETURN(const auto drafter,
                          dflash::Drafter::load(*drafter_config_, options_.draft, *decoder,
                                                drafter_measure, options_.compute));
  footprint.reserved_bytes(MemoryClass::kWeights) += drafter_measure.charged_bytes();
  source_bytes += drafter_measure.source_bytes();
  if (!options_.session.drafting) return footprint;
  const DflashPlan dflash = plan_dflash(drafter->config(), plan, options_.draft.unfused);
  KAKEYA_TRY(dflash.context.check());
  const Footprint source = estimate_dflash(drafter->config(), dflash, *backend_);
  for (std::size_t i = 0; i < kNumMemoryClasses; ++i) footprint.reserved[i] += source.reserved[i];
  return footprint;
}

Status EngineImpl::load(Sources sources) {
  std::uint64_t source_bytes = 0;
  KAKEYA_ASSIGN_OR_RETURN(const Footprint need, estimate(sources, source_bytes));
  if (need.total_reserved() > options_.memory_limit) {
    return error(StatusCode::kResourceExhausted,
                 "memory limit of {} is too small: this model and one session of {} tokens need {}",
                 format_bytes(options_.memory_limit), session_context(), need.to_string());
  }
  std::uint64_t target_bytes = 0;
  const auto progress = [&](std::uint64_t done) {
    if (options_.on_progress) options_.on_progress(target_bytes + done, source_bytes);
  };
  WeightLoader loader(*sources.target, *backend_, budget_, progress);
  KAKEYA_ASSIGN_OR_RETURN(decoder_, load_decoder(config_, loader, options_.compute));
  if (drafter_config_) {
    target_bytes = loader.source_bytes();
    WeightLoader drafter_loader(*sources.drafter, *backend_, budget_, progress);
    KAKEYA_ASSIGN_OR_RETURN(
        drafter_, dflash::Drafter::load(*drafter_config_, options_.draft, *decoder_, drafter_loader,
                                        options_.compute));
  }
  draft_statistics_ = std::make_unique<DraftStatistics>(options_.draft.cost_cache, cost_key());
  // Look-up tables are read where the checkpoint is mapped; everything else was copied.
  if (config_.hidden_size_per_layer_input > 0) source_ = std::move(sources.target);
  return {};
}

Result<std::unique_ptr<dflash::Drafter>> EngineImpl::load_drafter(const DraftOptions& options) {
  if (!drafter_config_) return error(StatusCode::kFailedPrecondition, "there is no drafter");
  KAKEYA_ASSIGN_OR_RETURN(
      const auto source,
      CheckpointSource::open(draft_choice_.drafter_dir, expected_tensors(*drafter_config_)));
  WeightLoader loader(*source, *backend_, budget_, {});
  return dflash::Drafter::load(*drafter_config_, options, *decoder_, loader, options_.compute);
}

std::optional<MeasuredCosts> EngineImpl::draft_costs() const {
  return draft_statistics_->costs(block_rows() - 1, drafter_ != nullptr);
}

std::int64_t EngineImpl::block_rows() const {
  if (drafter_config_) return drafter_config_->block_size;
  return draft_choice_.ngram ? SessionDrafts::kNgramLength + 1 : 1;
}

std::int64_t EngineImpl::verify_rows(const SessionOptions& options) const {
  return options.drafting ? block_rows() : 1;
}

CostKey EngineImpl::cost_key() const {
  std::string model =
      fmt::format("{} layers {} hidden {} vocabulary {} weights {} compute {}", config_.model_type,
                  config_.num_hidden_layers, config_.hidden_size, config_.vocab_size,
                  budget_.footprint().reserved_bytes(MemoryClass::kWeights),
                  static_cast<int>(options_.compute));
  if (drafter_config_) {
    model +=
        fmt::format(" drafter layers {} hidden {} block {} mask {}",
                    drafter_config_->layers.num_hidden_layers, drafter_config_->layers.hidden_size,
                    drafter_config_->block_size, static_cast<int>(options_.draft.mask));
  }
  return {.binary = binary_text(),
          .model = std::move(model),
          .machine = machine_text(backend_->num_threads(), backend_->name())};
}

std::int64_t EngineImpl::session_context() const {
  return options_.session.context > 0
             ? options_.session.context
             : std::min(config_.max_position_embeddings, SessionOptions::kDefaultContext);
}

void EngineImpl::collect_stop_ids() {
  for (const auto* ids : {&config_.eos_token_ids, &generation_config_.eos_token_ids}) {
    for (const TokenId id : *ids) {
      if (std::find(stop_ids_.begin(), stop_ids_.end(), id) == stop_ids_.end()) {
        stop_ids_.push_back(id);
      }
    }
  }
}

SamplingOptions EngineImpl::recommended_sampling() const {
  SamplingOptions sampling;
  if (!generation_config_.do_sample) return sampling;
  sampling.temperature = generation_config_.temperature.value_or(1.0F);
  sampling.top_k = generation_config_.top_k.value_or(0);
  sampling.top_p = generation_config_.top_p.value_or(1.0F);
  sampling.min_p = generation_config_.min_p.value_or(0.0F);
  sampling.repetition_penalty = generation_config_.repetition_penalty.value_or(1.0F);
  return sampling;
}

Result<std::unique_ptr<Timeline>> EngineImpl::create_timeline(const SessionOptions& options,
                                                              std::int64_t logit_rows) {
  KAKEYA_ASSIGN_OR_RETURN(const TimelinePlan plan,
                          plan_timeline(config_, options, options_.compute, logit_rows));
  return Timeline::create(*decoder_, *backend_, plan, budget_);
}

Result<std::unique_ptr<Session>> EngineImpl::create_session(const SessionOptions& options) {
  return create_session(options, {});
}

Result<std::unique_ptr<Session>> EngineImpl::create_session(const SessionOptions& options,
                                                            const DraftWrapper& wrapper) {
  KAKEYA_ASSIGN_OR_RETURN(const TimelinePlan plan,
                          plan_timeline(config_, options, options_.compute, verify_rows(options)));
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<Timeline> timeline,
                          Timeline::create(*decoder_, *backend_, plan, budget_));
  KAKEYA_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(config_.vocab_size, budget_));
  std::unique_ptr<DflashSource> dflash;
  if (options.drafting && drafter_ != nullptr) {
    const DflashPlan dflash_plan = plan_dflash(drafter_->config(), plan, options_.draft.unfused);
    KAKEYA_TRY(dflash_plan.context.check());
    KAKEYA_ASSIGN_OR_RETURN(dflash,
                            DflashSource::create(*drafter_, *backend_, dflash_plan, budget_));
    timeline->set_tap_sink(dflash.get());
  }
  std::unique_ptr<SessionDrafts> drafts;
  if (dflash != nullptr || (options.drafting && draft_choice_.ngram)) {
    drafts = std::make_unique<SessionDrafts>(std::move(dflash), options_.draft, draft_choice_.ngram,
                                             *draft_statistics_);
    if (wrapper) drafts->wrap(wrapper);
  }
  return std::make_unique<SessionImpl>(std::move(timeline), std::move(sampler), std::move(drafts),
                                       stop_ids_, generation_config_.suppress_tokens);
}

Result<std::unique_ptr<Session>> EngineImpl::create_session() {
  return create_session(options_.session);
}

}  // namespace kakeya
