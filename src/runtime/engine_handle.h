// The result of Engine::open(): a share of an engine. Each session holds another share, so that
// engine and sessions can be destroyed in any order.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/engine_impl.h"
#include "runtime/scheduler_impl.h"

namespace kakeya {

class EngineHandle final : public Engine {
 public:
  explicit EngineHandle(std::shared_ptr<EngineImpl> engine) : engine_(std::move(engine)) {}

  Result<std::unique_ptr<Session>> create_session(const SessionOptions& options) override {
    return engine_->create_session(options, {.owner = engine_});
  }
  Result<std::unique_ptr<Session>> create_session() override {
    return create_session(engine_->session_options());
  }
  Result<std::unique_ptr<Scheduler>> create_scheduler(const SchedulerOptions& options) override {
    return SchedulerImpl::create(*engine_, options, engine_);
  }
  Result<const Tokenizer*> tokenizer() const override { return engine_->tokenizer(); }
  Result<ChatPrompt> apply_chat_template(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const override {
    return engine_->apply_chat_template(messages, options);
  }
  Result<std::vector<float>> embed(std::span<const TokenId> ids,
                                   const EmbeddingOptions& options) override {
    return engine_->embed(ids, options);
  }
  std::int64_t vocab_size() const override { return engine_->vocab_size(); }
  std::int64_t hidden_size() const override { return engine_->hidden_size(); }
  std::int64_t max_context() const override { return engine_->max_context(); }
  std::span<const TokenId> stop_ids() const override { return engine_->stop_ids(); }
  TokenId bos_id() const override { return engine_->bos_id(); }
  SamplingOptions recommended_sampling() const override { return engine_->recommended_sampling(); }
  std::string_view backend_name() const override { return engine_->backend_name(); }
  int num_threads() const override { return engine_->num_threads(); }
  const SessionOptions& session_options() const override { return engine_->session_options(); }
  std::string memory_plan() const override { return engine_->memory_plan(); }
  Footprint footprint() const override { return engine_->footprint(); }
  PromptCacheStatistics prompt_cache_statistics() const override {
    return engine_->prompt_cache_statistics();
  }

  // For tests.
  EngineImpl& impl() { return *engine_; }

 private:
  std::shared_ptr<EngineImpl> engine_;
};

}  // namespace kakeya
