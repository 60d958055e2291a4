// peer_kakeya: Kakeya's side of a comparison; see README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <utility>

#include "backend/cpu/probe.h"
#include "base/status.h"
#include "decode/timeline.h"
#include "peer.h"
#include "runtime/engine_impl.h"

namespace kakeya::peers {
namespace {

struct Flags : PeerFlags {
  std::string draft = "none";
  std::string compute = "fast";
  double probe_seconds = 0.3;
};

class KakeyaPeer final : public Peer {
 public:
  static Result<std::unique_ptr<Peer>> open(const Flags& flags) {
    EngineOptions options;
    options.model_dir = flags.model;
    options.compute = flags.compute == "f32" ? Compute::kF32 : Compute::kFast;
    options.num_threads = flags.threads;
    options.session.context = flags.context;
    options.session.max_rows = kPeerMaxRows;
    options.draft.source = flags.draft;
    KAKEYA_ASSIGN_OR_RETURN(auto engine, EngineImpl::open(options));
    KAKEYA_ASSIGN_OR_RETURN(auto timeline,
                            engine->create_timeline(options.session, kPeerMaxLogitRows));
    return std::unique_ptr<Peer>(new KakeyaPeer(std::move(engine), std::move(timeline)));
  }

  const char* name() const override { return "kakeya"; }
  std::int64_t vocab_size() const override { return engine_->config().vocab_size; }
  std::int64_t max_rows() const override { return kPeerMaxRows; }
  std::int64_t max_logit_rows() const override { return kPeerMaxLogitRows; }
  std::uint64_t bytes_read() const override { return timeline_->bytes_read(); }

  Status run(std::span<const std::int32_t> ids, std::int64_t logit_rows) override {
    logit_rows_ = logit_rows;
    return timeline_->forward(ids, {.logits = {logits_.data(), logit_rows, vocab_size()}});
  }

  std::span<const float> logits() const override {
    return std::span(logits_).first(static_cast<std::size_t>(logit_rows_ * vocab_size()));
  }

  Status truncate(std::int64_t length) override { return timeline_->truncate(length); }

  Result<TextTokens> tokenize(std::string_view text) override {
    KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_->tokenizer());
    KAKEYA_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer->encode(text));
    return TextTokens{.ids = std::move(ids), .bos = engine_->bos_id()};
  }

  Result<Generation> generate(std::span<const std::int32_t> prompt, std::int64_t count) override {
    KAKEYA_ASSIGN_OR_RETURN(const auto session, engine_->create_session());
    KAKEYA_TRY(session->append(prompt));
    KAKEYA_TRY(session->prefill());
    KAKEYA_ASSIGN_OR_RETURN(
        GenerateResult result,
        session->generate({.max_tokens = count, .ignore_model_stop_ids = true}));
    return Generation{.ids = std::move(result.ids),
                      .seconds = result.decode_seconds,
                      .drafted = result.drafted,
                      .accepted = result.accepted,
                      .rounds = std::ssize(result.rounds)};
  }

 private:
  KakeyaPeer(std::unique_ptr<EngineImpl> engine, std::unique_ptr<Timeline> timeline)
      : engine_(std::move(engine)),
        timeline_(std::move(timeline)),
        logits_(static_cast<std::size_t>(kPeerMaxLogitRows * engine_->config().vocab_size)) {}

  std::unique_ptr<EngineImpl> engine_;
  std::unique_ptr<Timeline> timeline_;
  std::vector<float> logits_;
  std::int64_t logit_rows_ = 0;
};

// Answers every line with the memory bandwidth of that moment.
void serve_probe(const Flags& flags) {
  ThreadPool pool({.num_threads = flags.threads});
  std::cout << R"({"engine": "probe"})" << std::endl;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    std::cout << fmt::format(R"({{"gb_per_s": {}}})",
                             cpu::measure_read_bandwidth(pool, flags.probe_seconds))
              << std::endl;
  }
}

int main_with(int argc, char** argv) {
  const Stopwatch watch;
  CLI::App app("Kakeya's side of a comparison: commands on standard input, answers in JSON");
  Flags flags;
  app.add_option("--model", flags.model, "Model; without one only the memory is probed");
  app.add_option("--draft", flags.draft, "Drafts of generate")->capture_default_str();
  app.add_option("--compute", flags.compute, "fast or f32")
      ->check(CLI::IsMember({"fast", "f32"}))
      ->capture_default_str();
  add_peer_flags(app, flags);
  app.add_option("--probe-seconds", flags.probe_seconds, "Of one probe")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (flags.model.empty()) {
    serve_probe(flags);
    return 0;
  }
  return serve_opened("peer_kakeya", KakeyaPeer::open(flags), watch);
}

}  // namespace
}  // namespace kakeya::peers

int main(int argc, char** argv) {
  return kakeya::peers::main_with(argc, argv);
}
