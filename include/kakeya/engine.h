// The engine: a loaded model with its tokenizer, shared by sessions. Its model never changes after
// open(); thread-safe. Sessions keep what they need of it alive: engine and sessions may be
// destroyed in any order. What is given as a pointer or a span (tokenizer(), stop_ids(),
// backend_name(), session_options()) is valid as long as the engine or one of its sessions lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/chat.h"
#include "kakeya/embedding.h"
#include "kakeya/memory.h"
#include "kakeya/options.h"
#include "kakeya/scheduler.h"
#include "kakeya/session.h"
#include "kakeya/status.h"
#include "kakeya/tokenizer.h"

namespace kakeya {

class Engine {
 public:
  // Loads a model folder: config.json, weights, tokenizer.json and the chat template.
  // Errors: kNotFound, kInvalidArgument, kDataLoss or kUnimplemented for a folder that cannot be
  // read (one line: what, expected, got, where); kResourceExhausted, with the itemised need, before
  // anything is loaded if the memory limit is too small.
  // Each session and scheduler has a share of the engine.
  static Result<std::shared_ptr<Engine>> open(const EngineOptions& options);

  // Estimates what open() and one session of options.session will take, from the headers alone.
  // Errors: those of open(), but for the limit.
  static Result<Footprint> estimate(const EngineOptions& options);

  virtual ~Engine() = default;

  // Errors: kInvalidArgument for a context beyond the model's, kResourceExhausted.
  virtual Result<std::unique_ptr<Session>> create_session(const SessionOptions& options) = 0;
  // With EngineOptions::session.
  virtual Result<std::unique_ptr<Session>> create_session() = 0;

  // Estimates what create_session() will charge, with no token yet; nothing is allocated. Errors:
  // those of create_session() that are about the options.
  virtual Result<Footprint> estimate_session(const SessionOptions& options) const = 0;

  // Runs many requests at once, in sessions of its own. Errors: kInvalidArgument for options out of
  // range, kResourceExhausted.
  virtual Result<std::unique_ptr<Scheduler>> create_scheduler(const SchedulerOptions& options) = 0;

  // The folder's tokenizer. Errors: kFailedPrecondition if it has none.
  virtual Result<const Tokenizer*> tokenizer() const = 0;

  // The prompt of a conversation, by the model's own chat template. Only the template writes
  // control tokens: those that a message, a tool's result or a tool's description spells are text,
  // which the template does not see as such. Errors: kFailedPrecondition if the folder has no
  // template; kInvalidArgument from the template, and for tools or arguments that are no JSON
  // objects, naming the one.
  virtual Result<ChatPrompt> apply_chat_template(std::span<const ChatMessage> messages,
                                                 const ChatOptions& options = {}) const = 0;

  // The tokens of a text that no chat template writes, bos_id() in front unless the text spells it.
  // Errors: kFailedPrecondition if the folder has no tokenizer; those of Tokenizer::encode().
  Result<std::vector<TokenId>> encode_text(std::string_view text,
                                           const EncodeOptions& options = {}) const;
  // The tokens of a conversation as its chat template writes it; more than `most_tokens` are
  // refused. Errors: those of apply_chat_template() and Tokenizer::encode().
  Result<std::vector<TokenId>> encode_chat(
      std::span<const ChatMessage> messages,
      const ChatOptions& options = {},
      std::size_t most_tokens = EncodeOptions{}.most_tokens) const;

  // The vector [hidden_size] of a text: the last layer's output after the final norm, pooled. In a
  // timeline of its own, which keeps all rows as the default session stores them; the numbers do
  // not depend on its SessionOptions::max_rows. Errors: kInvalidArgument for no tokens, more than
  // max_context() or ids outside the vocabulary; kResourceExhausted; kDataLoss for a vector that is
  // not finite.
  virtual Result<std::vector<float>> embed(std::span<const TokenId> ids,
                                           const EmbeddingOptions& options = {}) = 0;

  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t hidden_size() const = 0;
  virtual std::int64_t max_context() const = 0;
  // Union of config.json's and generation_config.json's eos ids.
  virtual std::span<const TokenId> stop_ids() const = 0;
  // The beginning-of-sequence token in front of a text that no chat template wrote, as the
  // tokenizer has it (add_bos_token, the post-processor, its kind); -1: none.
  virtual TokenId bos_id() const = 0;
  // The publisher's recommendation, from generation_config.json.
  virtual SamplingOptions recommended_sampling() const = 0;
  // Tells this model from every other one, by its configuration and weights: equal texts of two
  // engines with equal fingerprints, options and backend go on alike.
  virtual const std::string& model_fingerprint() const = 0;
  // The proposer of drafts for sessions with SessionOptions::drafting: kDflash also where n-grams
  // come first; kNone: nothing is drafted.
  virtual DraftKind draft_kind() const = 0;
  // "cpu/avx512_bf16"
  virtual std::string_view backend_name() const = 0;
  virtual int num_threads() const = 0;
  // The options that create_session() uses: EngineOptions::session, or what fit_memory made of it.
  virtual const SessionOptions& session_options() const = 0;
  // Those options in words, where fit_memory was asked for: context, what was given up, bytes.
  virtual std::string memory_plan() const = 0;
  // Most bytes of the memory where keys and values lie: EngineOptions::memory_limit, or that of the
  // device.
  virtual std::uint64_t memory_limit() const = 0;
  // Bytes of the weights, of all sessions and of the prompt cache, as allocated.
  virtual Footprint footprint() const = 0;
  // Charges host memory that its user has for answers to the memory limit, until the result is
  // destroyed, which keeps the engine; the prompt cache makes room. Thread-safe.
  // Errors: kResourceExhausted.
  virtual Result<std::unique_ptr<MemoryCharge>> charge(MemoryClass memory_class,
                                                       std::uint64_t bytes) const = 0;
  virtual PromptCacheStatistics prompt_cache_statistics() const = 0;
  // The part of the text that sessions of these options would find in the prompt cache; nothing
  // without one, or for options that no session can have.
  virtual CachedPrefix cached_prefix(std::span<const TokenId> ids,
                                     const SessionOptions& options) const = 0;
  // Forgets the entries of more than `keep` tokens that the prompt cache has of this text and of no
  // other, for sessions of these options. Returns the bytes that are free by it.
  virtual std::uint64_t forget_prefix(std::span<const TokenId> ids,
                                      std::int64_t keep,
                                      const SessionOptions& options) = 0;
};

}  // namespace kakeya
