#include "runtime/engine_impl.h"

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
  return engine;
}

Result<std::unique_ptr<EngineImpl>> EngineImpl::open(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> engine, prepare(options));
  KAKEYA_ASSIGN_OR_RETURN(engine->text_, ModelText::load(options.model_dir));
  KAKEYA_ASSIGN_OR_RETURN(auto source, CheckpointSource::open(options.model_dir, engine->config_));
  KAKEYA_TRY(engine->load(std::move(source)));
  return engine;
}

Result<std::unique_ptr<EngineImpl>> EngineImpl::open_random(const ModelConfig& config,
                                                            const EngineOptions& options) {
  std::unique_ptr<EngineImpl> engine(new EngineImpl(config, options));
  KAKEYA_ASSIGN_OR_RETURN(engine->backend_, make_backend(options));
  engine->collect_stop_ids();
  ThreadPool pool({.num_threads = options.num_threads, .pin = false});
  KAKEYA_TRY(engine->load(std::make_unique<RandomSource>(config, /*seed=*/1, pool)));
  engine->source_.reset();  // it refers to the pool
  return engine;
}

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> engine, EngineImpl::open(options));
  return engine;
}

Result<Footprint> Engine::estimate(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> engine, EngineImpl::prepare(options));
  KAKEYA_ASSIGN_OR_RETURN(auto source, CheckpointSource::open(options.model_dir, engine->config_));
  std::uint64_t source_bytes = 0;
  return engine->estimate(*source, source_bytes);
}

// The weights and one session of options_.session. `source_bytes` is the size of the tensors.
Result<Footprint> EngineImpl::estimate(TensorSource& source, std::uint64_t& source_bytes) {
  WeightLoader measure(source, *backend_);
  KAKEYA_TRY(load_decoder(config_, measure, options_.compute));
  KAKEYA_ASSIGN_OR_RETURN(const TimelinePlan plan,
                          plan_timeline(config_, options_.session, options_.compute, 1));
  Footprint footprint = estimate_timeline(config_, plan, *backend_);
  footprint.reserved_bytes(MemoryClass::kWeights) += measure.charged_bytes();
  footprint.reserved_bytes(MemoryClass::kLogits) += Sampler::bytes(config_.vocab_size);
  source_bytes = measure.source_bytes();
  return footprint;
}

Status EngineImpl::load(std::unique_ptr<TensorSource> source) {
  std::uint64_t source_bytes = 0;
  KAKEYA_ASSIGN_OR_RETURN(const Footprint need, estimate(*source, source_bytes));
  if (need.total_reserved() > options_.memory_limit) {
    return error(StatusCode::kResourceExhausted,
                 "memory limit of {} is too small: this model and one session of {} tokens need {}",
                 format_bytes(options_.memory_limit), session_context(), need.to_string());
  }
  WeightLoader loader(*source, *backend_, budget_, [&](std::uint64_t done) {
    if (options_.on_progress) options_.on_progress(done, source_bytes);
  });
  KAKEYA_ASSIGN_OR_RETURN(decoder_, load_decoder(config_, loader, options_.compute));
  // Look-up tables are read where the checkpoint is mapped; everything else was copied.
  if (config_.hidden_size_per_layer_input > 0) source_ = std::move(source);
  return {};
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
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<Timeline> timeline, create_timeline(options, 1));
  KAKEYA_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(config_.vocab_size, budget_));
  return std::make_unique<SessionImpl>(std::move(timeline), std::move(sampler), stop_ids_,
                                       generation_config_.suppress_tokens);
}

Result<std::unique_ptr<Session>> EngineImpl::create_session() {
  return create_session(options_.session);
}

}  // namespace kakeya
