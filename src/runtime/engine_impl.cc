#include "runtime/engine_impl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/status.h"
#include "decode/timeline_plan.h"
#include "formats/generation_notes.h"
#include "formats/gguf_checkpoint.h"
#include "formats/printable.h"
#include "model/checkpoint_source.h"
#include "model/random_source.h"
#include "model/weight_loader.h"
#include "runtime/memory_ladder.h"
#include "runtime/text_notes.h"
#include "sampling/sampler.h"

namespace kakeya {
namespace {

Result<std::unique_ptr<Backend>> make_backend(const EngineOptions& options) {
  return create_backend(
      {.name = options.backend,
       .threads = {.num_threads = options.num_threads, .pin = options.pin_threads}});
}

void add_token_id(TokenId id, std::vector<TokenId>& ids) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

// `no_tokens`: ids to be suppressed that the vocabulary does not have.
Status note_what_is_not_followed(const EngineOptions& options,
                                 std::span<const TokenId> no_tokens,
                                 const TextNotes& notes) {
  KAKEYA_ASSIGN_OR_RETURN(auto fields, load_fields_not_followed(options.model_dir));
  if (!options.on_note) return {};
  if (!no_tokens.empty()) {
    constexpr std::size_t kMostNamed = 8;
    fields.push_back(
        fmt::format("suppress_tokens {}{} (no tokens of this model)",
                    fmt::join(no_tokens.first(std::min(kMostNamed, no_tokens.size())), ", "),
                    no_tokens.size() > kMostNamed ? ", ..." : ""));
  }
  if (!fields.empty()) {
    options.on_note(fmt::format("{}{}: tokens are not chosen in this way: {}", options.model_dir,
                                is_gguf_path(options.model_dir) ? "" : "/generation_config.json",
                                fmt::join(fields, ", ")));
  }
  for (const std::string& line : notes.lines) options.on_note(line);
  return {};
}

}  // namespace

// Everything up to the weights: configuration, backend.
Result<std::unique_ptr<EngineImpl>> EngineImpl::prepare(const EngineOptions& options) {
  if (options.num_threads < 0 || options.num_threads > EngineOptions::kMostThreads) {
    return invalid_argument("EngineOptions::num_threads must be 0 to {} but is {}",
                            EngineOptions::kMostThreads, options.num_threads);
  }
  KAKEYA_ASSIGN_OR_RETURN(ModelConfig config, load_model_config(options.model_dir));
  std::unique_ptr<EngineImpl> engine(new EngineImpl(std::move(config), options));
  KAKEYA_ASSIGN_OR_RETURN(engine->generation_config_, load_generation_config(options.model_dir));
  // An id outside the vocabulary cannot be drawn anyway.
  auto& suppressed = engine->generation_config_.suppress_tokens;
  const auto no_tokens =
      std::stable_partition(suppressed.begin(), suppressed.end(),
                            [&](TokenId id) { return id >= 0 && id < engine->config_.vocab_size; });
  engine->not_suppressed_.assign(no_tokens, suppressed.end());
  suppressed.erase(no_tokens, suppressed.end());
  KAKEYA_ASSIGN_OR_RETURN(engine->backend_, make_backend(options));
  engine->collect_stop_ids();
  KAKEYA_ASSIGN_OR_RETURN(engine->draft_choice_,
                          resolve_draft_choice(options.draft.source, options.model_dir));
  if (is_calibrated(options.session.kv_full)) KAKEYA_TRY(engine->load_statistics());
  KAKEYA_TRY(engine->choose_projection());
  KAKEYA_TRY(engine->prepare_drafter());
  KAKEYA_TRY(engine->prepare_projection());
  return engine;
}

Status EngineImpl::load_statistics() {
  const bool is_auto = options_.kv_statistics == "auto";
  const std::string path =
      is_auto ? kv_statistics_path(options_.model_dir) : options_.kv_statistics;
  std::error_code ignored;  // a folder that cannot be looked at has none
  if (is_auto && !std::filesystem::exists(path, ignored)) {
    return error(StatusCode::kFailedPrecondition,
                 "calibrated types of the KV cache need statistics of the model: run `kakeya "
                 "calibrate {}`, which writes {}",
                 options_.model_dir, path);
  }
  KAKEYA_ASSIGN_OR_RETURN(KvStatistics statistics, load_kv_statistics(path, config_));
  statistics_ = std::move(statistics);
  return check_statistics();
}

bool EngineImpl::has_statistics() const {
  std::error_code ignored;  // a folder that cannot be looked at has none
  return backend_->reads_codes() &&
         (options_.kv_statistics != "auto" ||
          std::filesystem::exists(kv_statistics_path(options_.model_dir), ignored));
}

Status EngineImpl::check_statistics() const {
  if (!statistics_ || model_fingerprint_.empty() || statistics_->weights == model_fingerprint_) {
    return {};
  }
  return error(StatusCode::kFailedPrecondition,
               "the statistics of the KV cache were made of other weights (of {}, not {}): run "
               "`kakeya calibrate {}`",
               printable(statistics_->weights), model_fingerprint_, options_.model_dir);
}

Status EngineImpl::prepare_drafter() {
  drafter_dir_ = draft_choice_.drafter_dir;
  if (drafter_dir_.empty() && !projection_dir_.empty()) {
    if (is_gguf_path(options_.model_dir)) {
      return error(StatusCode::kFailedPrecondition,
                   "{}: a projection needs a drafter's weights, which a GGUF file of a model does "
                   "not hold: expected those of one in DraftOptions::source",
                   options_.model_dir);
    }
    drafter_dir_ = std::filesystem::path(options_.model_dir) / "drafter";
    drafter_drafts_ = false;
  }
  if (drafter_dir_.empty()) return {};
  auto config = load_drafter_config(drafter_dir_);
  if (!config && !drafter_drafts_) {
    return Unexpected(config.error().with_context("a projection needs a drafter's weights"));
  }
  KAKEYA_ASSIGN_OR_RETURN(drafter_config_, std::move(config));
  if (const Status fits = check_drafter_fits(*drafter_config_, config_); !fits) {
    return Unexpected(fits.error().with_context(drafter_dir_));
  }
  return {};
}

// The folder first: whether there is one decides whether a drafter is needed.
Status EngineImpl::choose_projection() {
  const SessionOptions& session = options_.session;
  const bool of_sliding = session.evicted_sliding == Evicted::kRestore;
  const bool restores = of_sliding || session.evicted_full == Evicted::kRestore;
  if (restores) KAKEYA_TRY(check_restorable(config_));
  projection_dir_ = options_.projection;
  if (options_.projection == "none") projection_dir_.clear();
  if (options_.projection != "auto") return {};
  projection_dir_.clear();
  if (!restores) return {};
  if (is_gguf_path(options_.model_dir)) {
    return error(StatusCode::kFailedPrecondition,
                 "{}: rows are restored by a projection, which a GGUF file does not hold: expected "
                 "the folder of one in EngineOptions::projection",
                 options_.model_dir);
  }
  const auto projections = std::filesystem::path(options_.model_dir) / "projections";
  std::error_code ignored;  // a folder that cannot be looked at is none
  const bool codes = !of_sliding && std::filesystem::exists(projections / "codes", ignored);
  projection_dir_ = projections / (codes ? "codes" : "aux");
  return {};
}

Status EngineImpl::prepare_projection() {
  if (projection_dir_.empty()) return {};
  KAKEYA_ASSIGN_OR_RETURN(projection_config_, read_projection(projection_dir_));
  return {};
}

Result<ProjectionConfig> EngineImpl::read_projection(const std::string& dir) const {
  if (!drafter_config_) {
    return error(StatusCode::kFailedPrecondition, "a projection needs a drafter's weights");
  }
  KAKEYA_ASSIGN_OR_RETURN(ProjectionConfig projection, load_projection_config(dir));
  if (const Status fits = check_projection_fits(projection, config_, *drafter_config_); !fits) {
    return Unexpected(fits.error().with_context(dir));
  }
  return projection;
}

Result<EngineImpl::Sources> EngineImpl::open_sources() const {
  Sources sources;
  KAKEYA_ASSIGN_OR_RETURN(sources.target, CheckpointSource::open(options_.model_dir, config_));
  if (drafter_config_) {
    KAKEYA_ASSIGN_OR_RETURN(
        sources.drafter, CheckpointSource::open(drafter_dir_, expected_tensors(*drafter_config_)));
  }
  if (projection_config_) {
    KAKEYA_ASSIGN_OR_RETURN(
        sources.projection,
        CheckpointSource::open(projection_dir_, expected_tensors(*projection_config_)));
  }
  return sources;
}

Result<std::unique_ptr<EngineImpl>> EngineImpl::open(const EngineOptions& options,
                                                     const BackendWrapper& wrapper) {
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> engine, prepare(options));
  if (wrapper) engine->backend_ = wrapper(std::move(engine->backend_));
  TextNotes notes;
  if (options.texts != ModelTexts::kUnread) {
    KAKEYA_ASSIGN_OR_RETURN(engine->text_,
                            ModelText::load(options.model_dir, options.chat_template));
    KAKEYA_ASSIGN_OR_RETURN(
        notes, read_text_notes(options.model_dir, engine->text_.tokenizer().value_or(nullptr)));
  }
  if (options.texts == ModelTexts::kChat) KAKEYA_TRY(engine->text_.check_template());
  if (notes.eos_id && *notes.eos_id < engine->config_.vocab_size) {
    add_token_id(*notes.eos_id, engine->stop_ids_);
  }
  KAKEYA_TRY(note_what_is_not_followed(options, engine->not_suppressed_, notes));
  KAKEYA_ASSIGN_OR_RETURN(Sources sources, engine->open_sources());
  KAKEYA_TRY(engine->load(std::move(sources)));
  return engine;
}

Result<std::unique_ptr<EngineImpl>> EngineImpl::open_random(
    const ModelConfig& config,
    const EngineOptions& options,
    const std::optional<DrafterConfig>& drafter,
    std::optional<QuantizedFormat> format,
    const BackendWrapper& wrapper) {
  std::unique_ptr<EngineImpl> engine(new EngineImpl(config, options));
  engine->options_.model_dir.clear();
  engine->drafter_config_ = drafter;
  KAKEYA_ASSIGN_OR_RETURN(engine->backend_, make_backend(options));
  if (wrapper) engine->backend_ = wrapper(std::move(engine->backend_));
  engine->collect_stop_ids();
  ThreadPool pool({.num_threads = options.num_threads, .pin = false});
  Sources sources{
      .target = std::make_unique<RandomSource>(expected_tensors(config), /*seed=*/1, pool, format),
      .drafter = nullptr};
  if (drafter) {
    sources.drafter =
        std::make_unique<RandomSource>(expected_tensors(*drafter), /*seed=*/2, pool, format);
  }
  KAKEYA_TRY(engine->load(std::move(sources)));
  engine->sources_.clear();  // they refer to the pool
  return engine;
}

Result<std::unique_ptr<EngineImpl>> EngineImpl::without_weights(const ModelConfig& config,
                                                                const EngineOptions& options) {
  std::unique_ptr<EngineImpl> engine(new EngineImpl(config, options));
  KAKEYA_ASSIGN_OR_RETURN(engine->backend_, make_backend(options));
  return engine;
}

Result<std::shared_ptr<Engine>> Engine::open(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(std::shared_ptr<EngineImpl> engine, EngineImpl::open(options));
  return engine;
}

Result<Footprint> Engine::estimate(const EngineOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<EngineImpl> engine, EngineImpl::prepare(options));
  KAKEYA_ASSIGN_OR_RETURN(const EngineImpl::Sources sources, engine->open_sources());
  std::uint64_t source_bytes = 0;
  return engine->estimate(sources, options.session, source_bytes);
}

Result<Footprint> EngineImpl::estimate(const Sources& sources,
                                       const SessionOptions& session,
                                       std::uint64_t& source_bytes) const {
  WeightLoader measure(*sources.target, *backend_);
  KAKEYA_ASSIGN_OR_RETURN(const auto decoder, load_decoder(config_, measure, options_.compute));
  KAKEYA_ASSIGN_OR_RETURN(const TimelinePlan plan, plan_session(session, verify_rows(session)));
  Footprint footprint = estimate_timeline(plan);
  footprint.reserved_bytes(MemoryClass::kWeights) += measure.charged_bytes();
  footprint.reserved_bytes(MemoryClass::kLogits) += Sampler::bytes(config_.vocab_size);
  footprint.reserved_bytes(MemoryClass::kCodes) += codes_bytes(plan);
  source_bytes = measure.source_bytes();
  WorkspacePlan workspace = plan.workspace;
  if (!drafter_config_) return footprint += estimate_workspace(workspace, *backend_);
  WeightLoader drafter_measure(*sources.drafter, *backend_);
  KAKEYA_ASSIGN_OR_RETURN(
      const auto drafter,
      dflash::Drafter::load(*drafter_config_, *decoder, drafter_measure, options_.compute));
  footprint.reserved_bytes(MemoryClass::kWeights) += drafter_measure.charged_bytes();
  source_bytes += drafter_measure.source_bytes();
  if (projection_config_) {
    WeightLoader projection_measure(*sources.projection, *backend_);
    KAKEYA_TRY(Projection::load(*projection_config_, projection_measure, options_.compute));
    footprint.reserved_bytes(MemoryClass::kWeights) += projection_measure.charged_bytes();
    source_bytes += projection_measure.source_bytes();
  }
  if (!session.drafting || !drafter_drafts_) {
    return footprint += estimate_workspace(workspace, *backend_);
  }
  const DflashPlan dflash = plan_dflash(drafter->config(), plan);
  KAKEYA_TRY(dflash.context.check());
  workspace.include(dflash.workspace);
  footprint += estimate_dflash(drafter->config(), dflash);
  return footprint += estimate_workspace(workspace, *backend_);
}

void EngineImpl::limit_to_free_memory() {
  const auto free = backend_->memory().free_bytes();
  if (!free || *free >= options_.device_memory_limit) return;
  device_has_less_ = true;
  options_.device_memory_limit = *free;
  budget_.set_device_limit(*free);
}

std::string EngineImpl::memory_limit_text() const {
  const std::string bytes = format_bytes(memory_limit());
  if (!device_has_less_) return fmt::format("memory limit of {}", bytes);
  return fmt::format("memory of {}, of which {} is free,", backend_->memory().name(), bytes);
}

Status EngineImpl::fit_session(const Sources& sources) {
  const SessionOptions asked = options_.session;
  const std::optional<DrafterConfig> drafter = drafter_config_;
  std::uint64_t unused = 0;
  for (const MemoryRung& rung : memory_ladder(asked, session_context(), has_statistics())) {
    // Without drafts nothing needs the drafter's weights, unless a projection takes its features.
    const bool no_drafts = asked.drafting && !rung.session.drafting;
    const bool given_up = drafter && no_drafts && !projection_config_;
    drafter_config_ = given_up ? std::nullopt : drafter;
    const auto need = estimate(sources, rung.session, unused);
    // The options as asked for must be possible; on further rungs, formats may not suit the heads.
    if (!need && rung.says.empty()) return Unexpected(need.error());
    if (!need) continue;
    if (is_calibrated(rung.session.kv_full) && !statistics_ && !load_statistics()) continue;
    options_.session = rung.session;
    memory_plan_ = fmt::format("context of {} tokens{}{}{}: {}", session_context(),
                               rung.says.empty() ? "" : ", ", rung.says,
                               given_up ? ", drafter not loaded" : "", need->to_string());
    if (need->total_reserved() <= memory_limit()) return {};
  }
  return error(StatusCode::kResourceExhausted,
               "{} is too small: at the least, this model and one session take a {}",
               memory_limit_text(), memory_plan_);
}

template <typename Load>
std::invoke_result_t<Load, WeightLoader&> EngineImpl::load_weights(
    TensorSource& source,
    const std::string& path,
    const WeightLoader::Progress& progress,
    LoadedBytes& loaded,
    Load load) {
  PackedWeights* packed = nullptr;
  if (weights_cache_.is_wanted() && !path.empty()) {
    WeightLoader measure(source, *backend_);
    KAKEYA_TRY(load(measure));
    KAKEYA_ASSIGN_OR_RETURN(packed, weights_cache_.open(path, source, *backend_, options_.compute,
                                                        measure.packed_entries()));
  }
  WeightLoader loader(source, *backend_, budget_, progress, packed);
  KAKEYA_ASSIGN_OR_RETURN(auto weights, load(loader));
  KAKEYA_TRY(source.check_unchanged());
  if (packed != nullptr) {
    KAKEYA_TRY(packed->finish(loader.fingerprint()));
    if (!packed->failure() && options_.on_note) {
      options_.on_note("packed weights are not kept: " + packed->failure().error().message());
    }
  }
  loaded = {.fingerprint = loader.fingerprint(),
            .source_bytes = loader.source_bytes(),
            .tables = {loader.tables().begin(), loader.tables().end()}};
  return weights;
}

Status EngineImpl::load(Sources sources) {
  limit_to_free_memory();
  workspace_ = std::make_unique<Workspace>(*backend_, budget_);
  if (options_.fit_memory) KAKEYA_TRY(fit_session(sources));
  std::uint64_t source_bytes = 0;
  KAKEYA_ASSIGN_OR_RETURN(const Footprint need, estimate(sources, options_.session, source_bytes));
  if (need.total_reserved() > memory_limit()) {
    const std::string refusal =
        fmt::format("{} is too small: this model and one session of {} tokens need {}",
                    memory_limit_text(), session_context(), need.to_string());
    if (!fit_session(sources)) return error(StatusCode::kResourceExhausted, "{}", refusal);
    return error(StatusCode::kResourceExhausted, "{}; it would hold a {}", refusal, memory_plan_);
  }
  std::uint64_t before = 0;  // bytes of the checkpoints that are loaded
  const auto progress = [&](std::uint64_t done) {
    if (options_.on_progress) options_.on_progress(before + done, source_bytes);
  };
  LoadedBytes loaded;
  const auto load_target = [&](WeightLoader& loader) {
    return load_decoder(config_, loader, options_.compute);
  };
  KAKEYA_ASSIGN_OR_RETURN(
      decoder_, load_weights(*sources.target, options_.model_dir, progress, loaded, load_target));
  KAKEYA_ASSIGN_OR_RETURN(model_fingerprint_,
                          identify_model(options_.model_dir, loaded.fingerprint));
  KAKEYA_TRY(check_statistics());
  tables_ = std::make_unique<TableIdentity>(std::move(loaded.tables), backend_->num_threads());
  if (drafter_config_) {
    before = loaded.source_bytes;
    const auto load_drafter = [&](WeightLoader& loader) {
      return dflash::Drafter::load(*drafter_config_, *decoder_, loader, options_.compute);
    };
    KAKEYA_ASSIGN_OR_RETURN(
        drafter_, load_weights(*sources.drafter, drafter_dir_, progress, loaded, load_drafter));
    KAKEYA_ASSIGN_OR_RETURN(drafter_fingerprint_, identify_model(drafter_dir_, loaded.fingerprint));
    before += loaded.source_bytes;
  }
  if (projection_config_) {
    const auto load_projection = [&](WeightLoader& loader) {
      return Projection::load(*projection_config_, loader, options_.compute);
    };
    KAKEYA_ASSIGN_OR_RETURN(projection_, load_weights(*sources.projection, projection_dir_,
                                                      progress, loaded, load_projection));
  }
  KAKEYA_TRY(open_prompt_cache(need));
  // Look-up tables are read where the checkpoint is mapped; everything else was copied.
  if (config_.hidden_size_per_layer_input > 0) sources_.push_back(std::move(sources.target));
  if (drafter_config_ && drafter_config_->has_selector()) {
    sources_.push_back(std::move(sources.drafter));
  }
  return keep_blocks_exact();
}

Status EngineImpl::open_prompt_cache(const Footprint& need) {
  std::uint64_t bytes = options_.prompt_cache_bytes;
  if (bytes == EngineOptions::kAutoPromptCache) {
    const bool is_host = backend_->memory().is_host();
    const std::uint64_t fixed = is_host
                                    ? need.reserved_bytes(MemoryClass::kWeights) +
                                          need.reserved_bytes(MemoryClass::kActivations)
                                    : 0;  // these lie in the device's memory, the cache does not
    bytes = (options_.memory_limit - std::min(fixed, options_.memory_limit)) / 4;
  }
  std::unique_ptr<TimedPrefixFiles> files;
  if (!options_.prompt_cache_dir.empty()) {
    if (bytes == 0) {
      return invalid_argument("EngineOptions::prompt_cache_dir needs a prompt cache, but {} is 0",
                              "EngineOptions::prompt_cache_bytes");
    }
    KAKEYA_ASSIGN_OR_RETURN(files,
                            TimedPrefixFiles::open({.dir = options_.prompt_cache_dir,
                                                    .limit_bytes = options_.prompt_cache_dir_bytes,
                                                    .tables = tables_->text(),
                                                    .note = options_.on_note}));
  }
  if (bytes > 0) {
    prompt_cache_ = std::make_unique<PromptCache>(bytes, budget_, std::move(files));
  }
  return {};
}

Result<std::unique_ptr<dflash::Drafter>> EngineImpl::load_drafter(DraftMask mask) {
  if (!drafter_config_) return error(StatusCode::kFailedPrecondition, "there is no drafter");
  KAKEYA_ASSIGN_OR_RETURN(auto source,
                          CheckpointSource::open(drafter_dir_, expected_tensors(*drafter_config_)));
  WeightLoader loader(*source, *backend_, budget_, {});
  auto drafter =
      dflash::Drafter::load(with_mask(*drafter_config_, mask), *decoder_, loader, options_.compute);
  if (drafter_config_->has_selector()) sources_.push_back(std::move(source));
  return drafter;
}

Result<std::unique_ptr<Projection>> EngineImpl::load_projection(const std::string& dir) {
  KAKEYA_ASSIGN_OR_RETURN(const ProjectionConfig config, read_projection(dir));
  KAKEYA_ASSIGN_OR_RETURN(const auto source, CheckpointSource::open(dir, expected_tensors(config)));
  WeightLoader loader(*source, *backend_, budget_, {});
  return Projection::load(config, loader, options_.compute);
}

RestoringConfigs EngineImpl::restoring_configs(const Projection* projection) const {
  if (projection != nullptr) return {&projection->config(), drafter_config()};
  if (projection_config_) return {&*projection_config_, drafter_config()};
  return {};
}

void EngineImpl::collect_stop_ids() {
  for (const auto* ids : {&config_.eos_token_ids, &generation_config_.eos_token_ids}) {
    for (const TokenId id : *ids) add_token_id(id, stop_ids_);
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

}  // namespace kakeya
