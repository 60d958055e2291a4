// The engine behind include/kakeya/engine.h, and the door for benchmarks and tests that need more
// than the public one: random weights, the decoder and backend themselves.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/memory_budget.h"
#include "decode/draft_costs.h"
#include "decode/timeline.h"
#include "decode/workspace.h"
#include "formats/kv_statistics.h"
#include "formats/model_config.h"
#include "kakeya/engine.h"
#include "model/decoder.h"
#include "model/tensor_source.h"
#include "model/weight_loader.h"
#include "runtime/model_identity.h"
#include "runtime/model_text.h"
#include "runtime/prompt_cache.h"
#include "runtime/session_drafts.h"
#include "runtime/weights_cache.h"

namespace kakeya {

// Puts a backend around the one that an engine would use, for benchmarks.
using BackendWrapper = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)>;

struct SessionNeed {
  Footprint session;
  WorkspacePlan workspace;  // of all sessions: the largest counts
};

// The arguments of create_session() beside the options.
struct SessionExtras {
  DraftWrapper wrapper = {};  // drafts pass through it; the session must have something that drafts
  const Projection* projection = nullptr;  // restores rows; null: the engine's own
  Comparison comparison = {};
};

// Where a shared_ptr owns it, as that of Engine::open() does, sessions and schedulers keep it
// alive.
class EngineImpl final : public Engine, public std::enable_shared_from_this<EngineImpl> {
 public:
  // `wrapper` may be empty. Errors: as Engine::open.
  static Result<std::unique_ptr<EngineImpl>> open(const EngineOptions& options,
                                                  const BackendWrapper& wrapper = {});

  // Opens an engine over random weights of `config` and, if given, of a drafter; without text.
  // options.model_dir and options.draft.source are ignored. `format`: of the matrices, as
  // RandomSource says.
  static Result<std::unique_ptr<EngineImpl>> open_random(
      const ModelConfig& config,
      const EngineOptions& options,
      const std::optional<DrafterConfig>& drafter = std::nullopt,
      std::optional<QuantizedFormat> format = std::nullopt,
      const BackendWrapper& wrapper = {});

  // Makes an engine without weights, drafter and text, which plan_session() and estimate_session()
  // can be asked and nothing else. options.model_dir and options.draft.source are ignored.
  static Result<std::unique_ptr<EngineImpl>> without_weights(const ModelConfig& config,
                                                             const EngineOptions& options);

  Result<std::unique_ptr<Session>> create_session(const SessionOptions& options) override;
  Result<std::unique_ptr<Session>> create_session() override;
  Result<Footprint> estimate_session(const SessionOptions& options) const override;
  Result<std::unique_ptr<Scheduler>> create_scheduler(const SchedulerOptions& options) override;
  const ModelText& text() const { return text_; }
  Result<const Tokenizer*> tokenizer() const override { return text_.tokenizer(); }
  Result<ChatPrompt> apply_chat_template(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const override {
    return text_.apply_chat_template(messages, options);
  }
  Result<std::vector<float>> embed(std::span<const TokenId> ids,
                                   const EmbeddingOptions& options) override;
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t hidden_size() const override { return config_.hidden_size; }
  std::int64_t max_context() const override { return config_.max_position_embeddings; }
  std::span<const TokenId> stop_ids() const override { return stop_ids_; }
  TokenId bos_id() const override {
    return text_.begins_texts() ? config_.bos_token_id.value_or(-1) : -1;
  }
  SamplingOptions recommended_sampling() const override;
  std::string_view backend_name() const override { return backend_->name(); }
  int num_threads() const override { return backend_->num_threads(); }
  const SessionOptions& session_options() const override { return options_.session; }
  std::string memory_plan() const override { return memory_plan_; }
  std::uint64_t memory_limit() const override { return budget_.limit_of(backend_->memory()); }
  Footprint footprint() const override { return budget_.footprint(); }
  Result<std::unique_ptr<MemoryCharge>> charge(MemoryClass memory_class,
                                               std::uint64_t bytes) const override;

  const ModelConfig& config() const { return config_; }
  const std::string& model_dir() const { return options_.model_dir; }
  Compute compute() const { return options_.compute; }
  Backend& backend() { return *backend_; }
  const Decoder& decoder() const { return *decoder_; }
  Workspace& workspace() { return *workspace_; }
  const MemoryBudget& budget() const { return budget_; }
  // Null without one.
  const dflash::Drafter* drafter() const { return drafter_.get(); }
  PromptCache* prompt_cache() const { return prompt_cache_.get(); }
  PromptCacheStatistics prompt_cache_statistics() const override {
    return prompt_cache_ ? prompt_cache_->statistics() : PromptCacheStatistics();
  }
  CachedPrefix cached_prefix(std::span<const TokenId> ids,
                             const SessionOptions& options) const override;
  std::uint64_t forget_prefix(std::span<const TokenId> ids,
                              std::int64_t keep,
                              const SessionOptions& options) override;
  // Loads another copy of the drafter's weights, with another mask, for parity tools.
  // Errors: kFailedPrecondition without a drafter; as Drafter::load.
  Result<std::unique_ptr<dflash::Drafter>> load_drafter(DraftMask mask);
  // Stands for configuration and weights in saved sessions and reports, as does the drafter's.
  const std::string& model_fingerprint() const override { return model_fingerprint_; }
  DraftKind draft_kind() const override;
  const std::string& drafter_fingerprint() const { return drafter_fingerprint_; }
  // The projection with which the engine's own sessions restore evicted rows; null without.
  const Projection* projection() const { return projection_.get(); }
  // True if there is what calibrated types of the KV cache need, as far as can be seen without
  // reading it.
  bool has_statistics() const;
  // The times that passes take, as measured from those that were run.
  DraftCosts& draft_costs() { return draft_costs_; }
  // The times of passes for drafts of every length; nothing before any pass was run.
  std::optional<CostTable> cost_table() const { return draft_costs_.table(block_rows() - 1); }

  // A session with what no user chooses, for benchmarks, evaluations and tests. Errors: as
  // create_session.
  Result<std::unique_ptr<Session>> create_session(const SessionOptions& options,
                                                  const SessionExtras& extras);

  // A session without sampling. `logit_rows`: most rows of logits it keeps of one pass; rows are
  // restored by `projection`, null for the engine's own. Errors: as create_session.
  Result<std::unique_ptr<Timeline>> create_timeline(const SessionOptions& options,
                                                    std::int64_t logit_rows,
                                                    const Projection* projection = nullptr,
                                                    const Comparison& comparison = {});
  // The plan of such a session.
  Result<TimelinePlan> plan_session(const SessionOptions& options,
                                    std::int64_t logit_rows,
                                    const Projection* projection = nullptr,
                                    const Comparison& comparison = {}) const;

  // The bytes that create_session() will charge, and the least that its passes need of the
  // workspace. `logprobs`: its generations want log-probabilities. Where the session grows, the
  // bytes of its first `tokens` tokens are added. Thread-safe. Errors: as plan_timeline.
  Result<SessionNeed> session_need(const SessionOptions& options,
                                   bool logprobs,
                                   std::int64_t tokens) const;

  // The options of a session that embeds a text of so many tokens.
  SessionOptions embedding_session(std::int64_t tokens) const;

  // Loads another projection than the engine's own. Errors: as Engine::open.
  Result<std::unique_ptr<Projection>> load_projection(const std::string& dir);

  // Room in the workspace for passes of so many sequences, of `max_rows` rows in all of which
  // `logit_rows` have logits. Errors: kResourceExhausted.
  Result<Workspace::Reservation> reserve_passes(std::int64_t max_sequences,
                                                std::int64_t max_rows,
                                                std::int64_t logit_rows);

  // The most tokens of a session with these options, or with the engine's.
  std::int64_t session_context(const SessionOptions& options) const;
  std::int64_t session_context() const { return session_context(options_.session); }

 private:
  friend class Engine;
  EngineImpl(ModelConfig config, const EngineOptions& options)
      : config_(std::move(config)),
        options_(options),
        budget_(options.memory_limit),
        weights_cache_(options.weights_cache, options.weights_cache_trust) {
    budget_.set_device_limit(options.device_memory_limit);
  }

  // Rather refused before anything is loaded than in the middle.
  void limit_to_free_memory();
  // "memory limit of 3.0 GiB": for errors.
  std::string memory_limit_text() const;

  // Where weights come from; `drafter` is null without one.
  struct Sources {
    std::unique_ptr<TensorSource> target;
    std::unique_ptr<TensorSource> drafter;
    std::unique_ptr<TensorSource> projection = nullptr;  // null without one
  };

  // All of a session.
  struct SessionPlan {
    TimelinePlan timeline;
    std::optional<DflashPlan> dflash;  // if the drafter drafts for it
    WorkspacePlan workspace;           // for both
  };
  Result<SessionPlan> plan_parts(const SessionOptions& options,
                                 const Projection* projection,
                                 const Comparison& comparison) const;
  // The key that must be equal for sessions to take over rows of one another.
  SnapshotKey key_of(const SessionOptions& options,
                     const TimelinePlan& plan,
                     const Projection* projection) const;

  static Result<std::unique_ptr<EngineImpl>> prepare(const EngineOptions& options);
  Result<Sources> open_sources() const;
  // The weights, the workspace and one session. `source_bytes` is the size of the tensors.
  Result<Footprint> estimate(const Sources& sources,
                             const SessionOptions& session,
                             std::uint64_t& source_bytes) const;
  // Goes down the ladder until a session fits; an engine whose sessions are not to draft is one
  // without a drafter from then on. Errors: kResourceExhausted, with the need of the last rung.
  Status fit_session(const Sources& sources);
  Status load(Sources sources);
  // If one is wanted; `need`: of weights and the default session.
  Status open_prompt_cache(const Footprint& need);
  // The weights at `path` as `load`, a function of a WeightLoader, loads them, through the weights
  // cache if one is wanted.
  struct LoadedBytes {
    std::uint64_t fingerprint = 0;
    std::uint64_t source_bytes = 0;
    std::vector<TensorView> tables = {};
  };
  template <typename Load>
  std::invoke_result_t<Load, WeightLoader&> load_weights(TensorSource& source,
                                                         const std::string& path,
                                                         const WeightLoader::Progress& progress,
                                                         LoadedBytes& loaded,
                                                         Load load);
  Status prepare_drafter();
  // Loads what calibrated types of the KV cache need. Errors: kFailedPrecondition without a file,
  // or for one of other weights; as load_kv_statistics.
  Status load_statistics();
  // The bytes that the codes of a plan will take when they are first made; 0 once they are there.
  std::uint64_t codes_bytes(const TimelinePlan& plan) const;
  // Checks them against the weights, once those are loaded.
  Status check_statistics() const;
  // The codes of the plan, made at the first use; null for a plan without. Thread-safe. Errors:
  // kFailedPrecondition without statistics; kUnimplemented where the backend reads no codes;
  // kResourceExhausted.
  Result<std::shared_ptr<const KvCodes>> codes_of(const TimelinePlan& plan);
  Status choose_projection();
  Status prepare_projection();
  // The config of a projection that fits the model and its drafter.
  Result<ProjectionConfig> read_projection(const std::string& dir) const;
  const DrafterConfig* drafter_config() const {
    return drafter_config_ ? &*drafter_config_ : nullptr;
  }
  RestoringConfigs restoring_configs(const Projection* projection) const;
  // The most rows of logits of one pass of any session.
  std::int64_t block_rows() const;
  // The most rows of logits of one pass of a session with these options.
  std::int64_t verify_rows(const SessionOptions& options) const;
  // The drafts of a session with these options, as far as a snapshot depends on them.
  std::string draft_fingerprint(const SessionOptions& options) const;
  std::string projection_fingerprint(const TimelinePlan& plan, const Projection* projection) const;
  void collect_stop_ids();
  // Where the backend promises no equal bits: lets blocks have no more rows than keep them. Errors:
  // kFailedPrecondition where none do and drafts were asked for; those of passes.
  Status keep_blocks_exact();

  ModelConfig config_;
  GenerationConfig generation_config_;
  std::vector<TokenId> not_suppressed_;  // suppress_tokens that are no tokens
  EngineOptions options_;
  bool device_has_less_ = false;          // than its limit in the options was
  std::unique_ptr<Backend> backend_;      // before everything that lies in its memory
  mutable MemoryBudget budget_;           // before everything that is charged to it
  std::unique_ptr<Workspace> workspace_;  // of all sessions; it grows with the first ones
  std::vector<std::unique_ptr<TensorSource>> sources_;  // those whose tables are read in place
  WeightsCache weights_cache_;                          // before the weights that it maps
  std::unique_ptr<Decoder> decoder_;
  DraftChoice draft_choice_;
  std::string drafter_dir_;  // empty: none
  std::optional<DrafterConfig> drafter_config_;
  bool drafter_drafts_ = true;  // false: it only gives features to the projection
  std::int64_t exact_rows_ = std::numeric_limits<std::int64_t>::max();  // most of a block
  std::unique_ptr<dflash::Drafter> drafter_;
  std::string projection_dir_;  // empty: none
  std::optional<ProjectionConfig> projection_config_;
  std::unique_ptr<Projection> projection_;
  std::optional<KvStatistics> statistics_;  // from the first session on that needs them
  mutable std::mutex codes_mutex_;
  std::vector<std::pair<KvBits, std::shared_ptr<const KvCodes>>> codes_;  // under codes_mutex_
  DraftCosts draft_costs_;
  std::unique_ptr<PromptCache> prompt_cache_;  // null: none is wanted
  ModelText text_;
  std::string memory_plan_;
  std::vector<TokenId> stop_ids_;
  std::string model_fingerprint_;  // of configuration and weights
  std::unique_ptr<TableIdentity> tables_;
  std::string drafter_fingerprint_;  // empty without a drafter
};

}  // namespace kakeya
