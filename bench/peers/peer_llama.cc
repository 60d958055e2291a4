// peer_llama: llama.cpp's side of a comparison, linked with a build of it that is made outside of
// the repository (fetch_llama_cpp); see README.md. Settings are those of llama.cpp's own programs:
// f16 keys and values, flash attention where it has it, small caches of sliding layers, repacked
// weights.
#include <common.h>
#include <fmt/format.h>
#include <llama.h>
#include <log.h>
#include <speculative.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "peer.h"

namespace kakeya::peers {
namespace {

struct Flags : PeerFlags {
  std::string draft;  // a GGUF file; empty: none
  int draft_max = 3;
  bool verbose = false;
};

Unexpected failed(const std::string& what) {
  return error(StatusCode::kInternal, "llama.cpp: {} failed", what);
}

llama_context_params context_params(const Flags& flags) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(flags.context);
  params.n_batch = kPeerMaxRows;
  params.n_ubatch = kPeerMaxRows;
  params.n_outputs_max = kPeerMaxLogitRows;
  params.n_threads = flags.threads;
  params.n_threads_batch = flags.threads;
  params.swa_full = false;
  params.no_perf = true;
  return params;
}

class LlamaPeer final : public Peer {
 public:
  static Result<std::unique_ptr<Peer>> open(const Flags& flags) {
    llama_backend_init();
    std::unique_ptr<LlamaPeer> peer(new LlamaPeer);
    peer->model_.reset(
        llama_model_load_from_file(flags.model.c_str(), llama_model_default_params()));
    if (!peer->model_) return failed("loading " + flags.model);
    peer->context_.reset(llama_init_from_model(peer->model_.get(), context_params(flags)));
    if (!peer->context_) return failed("making a context");
    peer->vocab_size_ = llama_vocab_n_tokens(llama_model_get_vocab(peer->model_.get()));
    if (!flags.draft.empty()) KAKEYA_TRY(peer->load_drafter(flags));
    return std::unique_ptr<Peer>(std::move(peer));
  }

  const char* name() const override { return "llama.cpp"; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::int64_t max_rows() const override { return kPeerMaxRows; }
  std::int64_t max_logit_rows() const override { return kPeerMaxLogitRows; }
  std::uint64_t bytes_read() const override { return 0; }

  Status run(std::span<const std::int32_t> ids, std::int64_t logit_rows) override {
    common_batch batch(context_.get());
    const std::int64_t first_logits = std::ssize(ids) - logit_rows;
    for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
      batch.add(ids[static_cast<std::size_t>(i)], static_cast<llama_pos>(length_ + i), 0,
                i >= first_logits);
    }
    KAKEYA_TRY(process(batch));
    // Waits for what is still being computed.
    llama_synchronize(context_.get());
    length_ += std::ssize(ids);
    logit_rows_ = logit_rows;
    return {};
  }

  std::span<const float> logits() const override {
    return {llama_get_logits(context_.get()), static_cast<std::size_t>(logit_rows_ * vocab_size_)};
  }

  Status truncate(std::int64_t length) override {
    llama_memory_t memory = llama_get_memory(context_.get());
    if (!llama_memory_seq_rm(memory, 0, static_cast<llama_pos>(length), -1)) {
      return failed(fmt::format("going back to {} tokens", length));
    }
    length_ = length;
    return {};
  }

  Result<Generation> generate(std::span<const std::int32_t> prompt, std::int64_t count) override {
    KAKEYA_TRY(truncate(0));
    if (drafter_) {
      llama_memory_clear(llama_get_memory(drafter_->context()), true);
      speculative_.reset();  // before another takes its place in the contexts
      speculative_.reset(common_speculative_init(params_.speculative, 1));
      if (!speculative_) return failed("preparing drafts");
    }
    // The last token stays for the first round.
    std::vector<llama_token> text(prompt.begin(), prompt.end() - 1);
    KAKEYA_TRY(run_prompt(text));
    if (speculative_) common_speculative_begin(speculative_.get(), 0, text);
    Generation made;
    llama_token last = prompt.back();
    const Stopwatch watch;
    while (std::ssize(made.ids) < count) KAKEYA_TRY(run_round(text, last, count, made));
    made.seconds = watch.seconds();
    made.ids.resize(static_cast<std::size_t>(count));
    KAKEYA_TRY(truncate(0));
    return made;
  }

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };

  LlamaPeer() = default;

  Status load_drafter(const Flags& flags) {
    params_.model.path = flags.model;
    params_.n_ctx = static_cast<std::int32_t>(flags.context);
    params_.n_batch = kPeerMaxRows;
    params_.n_ubatch = kPeerMaxRows;
    params_.cpuparams.n_threads = flags.threads;
    params_.cpuparams_batch.n_threads = flags.threads;
    params_.speculative.types = {COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH};
    params_.speculative.draft.mparams.path = flags.draft;
    params_.speculative.draft.n_max = flags.draft_max;
    params_.speculative.draft.cpuparams = params_.cpuparams;
    params_.speculative.draft.cpuparams_batch = params_.cpuparams_batch;
    common_params of_drafter = common_base_params_to_speculative(params_);
    drafter_ = common_speculative_init_from_params(of_drafter, model_.get(), context_.get());
    if (!drafter_ || drafter_->context() == nullptr) return failed("loading " + flags.draft);
    params_.speculative.draft.ctx_tgt = context_.get();
    params_.speculative.draft.ctx_dft = drafter_->context();
    return {};
  }

  Status process(common_batch& batch) {
    if (llama_process(context_.get(), LLAMA_PROCESS_TYPE_DECODE, batch.get()) != 0) {
      return failed("a pass");
    }
    return {};
  }

  // Runs process(), and shows the drafter the target's layers.
  Status process_for_drafts(common_batch& batch) {
    KAKEYA_TRY(process(batch));
    if (speculative_ && !common_speculative_process(speculative_.get(), batch)) {
      return failed("the drafter's pass over the context");
    }
    return {};
  }

  Status run_prompt(const std::vector<llama_token>& text) {
    for (std::size_t begin = 0; begin < text.size(); begin += kPeerMaxRows) {
      common_batch batch(context_.get());
      const std::size_t end = std::min<std::size_t>(text.size(), begin + kPeerMaxRows);
      for (std::size_t i = begin; i < end; ++i) {
        batch.add(text[i], static_cast<llama_pos>(i), 0, false);
      }
      KAKEYA_TRY(process_for_drafts(batch));
    }
    length_ = std::ssize(text);
    return {};
  }

  std::vector<llama_token> draft(const std::vector<llama_token>& text,
                                 llama_token last,
                                 std::int64_t most) {
    std::vector<llama_token> drafts;
    if (!speculative_) return drafts;
    common_speculative_get_draft_params(speculative_.get(), 0) = {
        .drafting = true,
        .n_max = static_cast<std::int32_t>(most),
        .pos0 = static_cast<llama_pos>(length_),
        .id_last = last,
        .prompt = &text,
        .result = &drafts};
    common_speculative_draft(speculative_.get());
    llama_memory_seq_rm(llama_get_memory(drafter_->context()), 0, static_cast<llama_pos>(length_),
                        -1);
    return drafts;
  }

  llama_token best_token(std::int64_t row) const {
    const float* logits = llama_get_logits_ith(context_.get(), static_cast<std::int32_t>(row));
    return static_cast<llama_token>(std::max_element(logits, logits + vocab_size_) - logits);
  }

  // Drafts, verifies, and keeps what the target chooses itself.
  Status run_round(std::vector<llama_token>& text,
                   llama_token& last,
                   std::int64_t count,
                   Generation& made) {
    const std::vector<llama_token> drafts =
        draft(text, last, std::max<std::int64_t>(0, count - std::ssize(made.ids) - 1));
    common_batch batch(context_.get());
    batch.add(last, static_cast<llama_pos>(length_), 0, true);
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      batch.add(drafts[i], static_cast<llama_pos>(length_ + 1) + static_cast<llama_pos>(i), 0,
                true);
    }
    KAKEYA_TRY(process_for_drafts(batch));
    std::size_t accepted = 0;
    while (true) {
      const llama_token chosen = best_token(static_cast<std::int64_t>(accepted));
      text.push_back(last);
      made.ids.push_back(chosen);
      last = chosen;
      if (accepted == drafts.size() || drafts[accepted] != chosen) break;
      ++accepted;
    }
    made.drafted += std::ssize(drafts);
    made.accepted += static_cast<std::int64_t>(accepted);
    ++made.rounds;
    if (speculative_) {
      common_speculative_accept(speculative_.get(), 0, static_cast<std::uint16_t>(accepted));
      llama_memory_seq_rm(llama_get_memory(drafter_->context()), 0,
                          static_cast<llama_pos>(text.size()), -1);
    }
    return truncate(std::ssize(text));
  }

  std::unique_ptr<llama_model, Free> model_;
  std::unique_ptr<llama_context, Free> context_;
  common_params params_;                        // of drafts
  common_speculative_init_result_ptr drafter_;  // null: none
  common_speculative_ptr speculative_;
  std::int64_t vocab_size_ = 0;
  std::int64_t length_ = 0;
  std::int64_t logit_rows_ = 0;
};

int main_with(int argc, char** argv) {
  const Stopwatch watch;
  CLI::App app("llama.cpp's side of a comparison: commands on standard input, answers in JSON");
  Flags flags;
  app.add_option("--model", flags.model, "A GGUF file")->required();
  app.add_option("--draft", flags.draft, "A GGUF file of a DFlash drafter, for generate");
  app.add_option("--draft-max", flags.draft_max, "Most drafts of a round")->capture_default_str();
  add_peer_flags(app, flags);
  app.add_flag("--verbose", flags.verbose, "llama.cpp's own messages");
  CLI11_PARSE(app, argc, argv);
  if (flags.threads == 0) flags.threads = static_cast<int>(std::thread::hardware_concurrency());
  if (!flags.verbose) {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    common_log_pause(common_log_main());
  }
  return serve_opened("peer_llama", LlamaPeer::open(flags), watch);
}

}  // namespace
}  // namespace kakeya::peers

int main(int argc, char** argv) {
  return kakeya::peers::main_with(argc, argv);
}
