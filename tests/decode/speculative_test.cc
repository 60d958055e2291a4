// Losslessness: speculative decoding gives the tokens of plain decoding, whatever drafts, however
// long the drafts are and wherever generation stops. Equality throughout.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostream>

#include "base/random.h"
#include "decode/generation.h"
#include "decode/ngram_source.h"
#include "model/test_model.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

using Tokens = std::vector<TokenId>;

// Proposes whatever a function of the position says.
class ScriptedSource final : public DraftSource {
 public:
  using Script = std::function<TokenId(Position position, std::size_t row)>;
  explicit ScriptedSource(Script script) : script_(std::move(script)) {}

  std::int64_t max_length() const override { return 16; }
  DraftOffer offer(std::span<const TokenId> /*tokens*/, Sampler& /*sampler*/) override {
    return {DraftKind::kNgram, 16};
  }
  Status draft(std::span<const TokenId> tokens,
               Sampler& /*sampler*/,
               std::span<TokenId> out) override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = script_(static_cast<Position>(tokens.size() + i), i);
    }
    return {};
  }

 private:
  Script script_;
};

struct Request {
  Tokens prompt;
  std::int64_t max_tokens = 40;
  SamplingOptions sampling;
  Tokens stop_ids;
  std::int64_t context = 320;
  std::int64_t stop_after = 0;  // the callback says stop after so many tokens; 0: never
};

// A target with whatever drafts for it in the tests.
struct Trio {
  std::string name;
  std::unique_ptr<TestModel> model;
  std::vector<std::unique_ptr<dflash::Drafter>> drafters;  // trained if there is one, and random
  std::int64_t window = 0;

  std::int64_t vocab_size() const { return model->config().vocab_size; }
};

std::string network_dir(const std::string& name) {
  return std::string(KAKEYA_TEST_DATA) + "/networks/" + name;
}

// A small drafter of random weights that fits the target.
DrafterConfig random_drafter_config(const ModelConfig& target) {
  DrafterConfig config = load_drafter_config(network_dir("dflash-gemma4")).value();
  config.layers.hidden_size = target.hidden_size;
  config.layers.vocab_size = target.vocab_size;
  config.block_size = 17;
  config.num_target_layers = target.num_hidden_layers;
  config.target_layer_ids = {0, target.num_hidden_layers - 1};
  config.mask_token_id = 4;
  return config;
}

const BackendChoice kBest = {.name = "cpu", .num_threads = 1};

std::unique_ptr<Trio> load_trio(const std::string& name,
                                const BackendChoice& backend = kBest,
                                Compute compute = Compute::kFast) {
  auto trio = std::make_unique<Trio>();
  trio->name = name;
  const std::string dir = name == "demo" ? KAKEYA_DEMO_MODEL : network_dir(name);
  trio->model = TestModel::load(dir, backend, compute);
  if (trio->model == nullptr) return nullptr;
  if (name == "demo") trio->drafters.push_back(trio->model->drafter(dir + "/drafter"));
  if (name == "gemma4-moe") {
    trio->drafters.push_back(trio->model->drafter(network_dir("dflash-gemma4")));
  }
  if (name == "qwen3-untied") {
    trio->drafters.push_back(trio->model->drafter(network_dir("dflash-qwen3")));
  }
  trio->drafters.push_back(
      trio->model->random_drafter(random_drafter_config(trio->model->config()), 7));
  trio->window = trio->model->config().sliding_window;
  return trio;
}

const std::vector<std::string> kTargets = {
    "gemma4-moe", "gemma4-moe-edge", "gemma4-dense", "gemma4-e",
    "gemma4-e4",  "qwen3-tied",      "qwen3-untied", "demo"};

Sampler make_sampler(TestModel& model, const Request& request) {
  Sampler sampler = Sampler::create(model.config().vocab_size, model.budget()).value();
  sampler.set_options(request.sampling, {});
  for (const TokenId id : request.prompt) sampler.add_prompt_token(id);
  return sampler;
}

SessionOptions session_options(const Request& request, std::int64_t max_rows) {
  return {.context = request.context, .max_rows = max_rows};
}

TokenCallback callback(const Request& request, std::int64_t& calls) {
  return [&](const TokenEvent&) { return ++calls != request.stop_after; };
}

struct Output {
  GenerateResult result;
  Tokens held;                // the timeline's tokens afterwards
  std::vector<float> logits;  // after the last of them
};

// The logits after all tokens, which also shows that rows and positions are in order.
std::vector<float> final_logits(Timeline& timeline) {
  return logits_behind(timeline);
}

Output finish(Timeline& timeline, GenerateResult result) {
  Output output{std::move(result), {}, {}};
  output.held.assign(timeline.tokens().begin(), timeline.tokens().end());
  if (timeline.position() < timeline.context()) output.logits = final_logits(timeline);
  return output;
}

Output plain(Trio& trio, const Request& request) {
  const auto timeline = trio.model->timeline(session_options(request, 24), 1);
  Sampler sampler = make_sampler(*trio.model, request);
  EXPECT_TRUE(timeline->push(request.prompt).has_value());
  EXPECT_TRUE(timeline->run_until(timeline->last_chunk()).has_value());
  GenerateResult result;
  std::int64_t calls = 0;
  const Status done = decode(*timeline, sampler, {}, nullptr,
                             {.max_tokens = request.max_tokens, .stop_ids = request.stop_ids}, {},
                             callback(request, calls), result);
  EXPECT_TRUE(done.has_value()) << done.error().message();
  return finish(*timeline, std::move(result));
}

struct Speculation {
  std::int64_t draft_length = 4;
  std::int64_t chunk = 24;
};

// `source` null: DFlash with `drafter`, beside n-grams if `both`.
Output speculate(Trio& trio,
                 const Request& request,
                 const Speculation& options,
                 DraftSource* source,
                 const dflash::Drafter* drafter = nullptr,
                 bool both = false) {
  const SessionOptions session = session_options(request, options.chunk);
  const auto timeline = trio.model->timeline(session, 17);
  std::unique_ptr<DflashSource> dflash;
  std::optional<NgramSource> ngram;
  std::vector<DraftSource*> sources;
  if (source != nullptr) sources.push_back(source);
  if (both) sources.push_back(&ngram.emplace(15));
  if (drafter != nullptr) {
    dflash = trio.model->dflash_source(*drafter, session);
    timeline->set_tap_sink(dflash.get());
    sources.push_back(dflash.get());
  }
  DraftCosts costs;
  Sampler sampler = make_sampler(*trio.model, request);
  EXPECT_TRUE(timeline->push(request.prompt).has_value());
  EXPECT_TRUE(timeline->run_until(timeline->last_chunk()).has_value());
  GenerateResult result;
  std::int64_t calls = 0;
  const Status done = decode(*timeline, sampler, sources, &costs,
                             {.max_tokens = request.max_tokens,
                              .stop_ids = request.stop_ids,
                              .draft_length = options.draft_length},
                             {}, callback(request, calls), result);
  EXPECT_TRUE(done.has_value()) << done.error().message();
  return finish(*timeline, std::move(result));
}

// Everything that a caller can see must be the same: tokens, reason, state.
void expect_equal(const Output& got, const Output& expected, const std::string& what) {
  ASSERT_EQ(got.result.ids, expected.result.ids) << what;
  EXPECT_EQ(got.result.stop_reason, expected.result.stop_reason) << what;
  EXPECT_EQ(got.held, expected.held) << what;
  EXPECT_EQ(got.logits, expected.logits) << what;
}

Tokens random_tokens(SequenceRng& rng, std::size_t count, std::int64_t vocab_size) {
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(vocab_size))));
  }
  return tokens;
}

SamplingOptions random_sampling(SequenceRng& rng) {
  const std::uint64_t kind = rng.below(4);
  if (kind == 0) return {};
  SamplingOptions sampling{.temperature = kind == 1 ? 0.7F : 1.0F, .seed = rng.next()};
  if (rng.below(2) == 0) sampling.top_k = static_cast<int>(1 + rng.below(40));
  if (rng.below(2) == 0) sampling.top_p = 0.9F;
  if (rng.below(3) == 0) sampling.min_p = 0.02F;
  if (rng.below(4) == 0) sampling.repetition_penalty = 1.2F;
  if (rng.below(4) == 0) sampling.frequency_penalty = 0.3F;
  return sampling;
}

// The tokens of a plain run that goes on beyond its end, so that an oracle always knows.
Tokens long_stream(Trio& trio, Request request) {
  request.max_tokens += 20;
  request.stop_ids = {};
  request.stop_after = 0;
  request.context += 40;
  return plain(trio, request).held;
}

class Losslessness : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    trio_ = load_trio(GetParam());
    ASSERT_NE(trio_, nullptr);
  }

  // A prompt of 1 token up to five windows, sampling of any kind, an end of any kind. Rings hold a
  // window and 16 to 23 rows, so most cases wrap them several times.
  Request random_request(SequenceRng& rng) {
    const std::int64_t window = trio_->window == 0 ? 12 : trio_->window;
    Request request;
    request.prompt = random_tokens(rng, 1 + rng.below(static_cast<std::uint64_t>(5 * window)),
                                   trio_->vocab_size());
    request.max_tokens = static_cast<std::int64_t>(30 + rng.below(50));
    request.context = static_cast<std::int64_t>(request.prompt.size()) + 150;
    request.sampling = random_sampling(rng);
    if (rng.below(6) == 0) request.stop_after = static_cast<std::int64_t>(1 + rng.below(20));
    if (rng.below(6) == 0) {
      request.context = static_cast<std::int64_t>(request.prompt.size() + 1 + rng.below(20));
    }
    return request;
  }

  std::unique_ptr<Trio> trio_;
};

// 8 targets x 36 requests x 7 ways to draft = 2,016 cases; a sixth of them in the short form.
TEST_P(Losslessness, EveryDrafterGivesThePlainTokensInEveryRandomCase) {
  SequenceRng rng(std::hash<std::string>{}(GetParam()));
  const auto vocabulary = static_cast<TokenId>(trio_->vocab_size());
  for (int n = 0; n < by_form(6, 36); ++n) {
    Request request = random_request(rng);
    Tokens stream = long_stream(*trio_, request);
    if (rng.below(3) == 0 && stream.size() > request.prompt.size() + 3) {  // a stop id inside
      request.stop_ids = {
          stream[request.prompt.size() + rng.below(stream.size() - request.prompt.size())]};
    }
    const Output expected = plain(*trio_, request);
    const auto truth = [&](Position p) {
      return stream[std::min(static_cast<std::size_t>(p), stream.size() - 1)];
    };
    const auto wrong = [&](Position p) { return (truth(p) + 1) % vocabulary; };
    const std::size_t right_rows = rng.below(16);
    ScriptedSource oracle([&](Position p, std::size_t) { return truth(p); });
    ScriptedSource liar([&](Position p, std::size_t) { return wrong(p); });
    ScriptedSource adversary(
        [&](Position p, std::size_t row) { return row < right_rows ? truth(p) : wrong(p); });
    SequenceRng noise(rng.next());
    ScriptedSource random([&](Position, std::size_t) {
      return static_cast<TokenId>(noise.below(static_cast<std::uint64_t>(vocabulary)));
    });
    const auto options = [&]() -> Speculation {
      const std::uint64_t length = rng.below(18);
      return {.draft_length = length == 17 ? kAutoDraftLength : static_cast<std::int64_t>(length),
              .chunk = static_cast<std::int64_t>(1 + rng.below(24))};
    };
    NgramSource ngram(15);
    for (DraftSource* source :
         std::vector<DraftSource*>{&oracle, &liar, &adversary, &random, &ngram}) {
      expect_equal(speculate(*trio_, request, options(), source), expected,
                   "scripted source in case " + std::to_string(n));
    }
    const dflash::Drafter& drafter = *trio_->drafters[rng.below(trio_->drafters.size())];
    expect_equal(speculate(*trio_, request, options(), nullptr, &drafter), expected, "dflash");
    expect_equal(speculate(*trio_, request, options(), nullptr, &drafter, true), expected, "both");
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST_P(Losslessness, AStopIdAMaximumAndACallbackCutABlockAtEveryPlace) {
  SequenceRng rng(3);
  Request request;
  request.prompt = random_tokens(rng, 30, trio_->vocab_size());
  request.sampling = {.temperature = 1.0F, .seed = 5};  // distinct tokens
  const Tokens stream = long_stream(*trio_, request);
  ScriptedSource oracle([&](Position p, std::size_t) {
    return stream[std::min(static_cast<std::size_t>(p), stream.size() - 1)];
  });
  for (std::int64_t place = 1; place <= 20; ++place) {
    Request cut = request;
    cut.max_tokens = place;
    // No more is drafted than could be committed.
    std::int64_t left = place - 1;
    for (const RoundRecord& round :
         speculate(*trio_, cut, {.draft_length = 8}, &oracle).result.rounds) {
      EXPECT_LT(round.drafted, left);
      left -= round.committed;
    }
    expect_equal(speculate(*trio_, cut, {.draft_length = 8}, &oracle), plain(*trio_, cut),
                 "maximum");
    cut = request;
    cut.stop_after = place;
    expect_equal(speculate(*trio_, cut, {.draft_length = 8}, &oracle), plain(*trio_, cut),
                 "callback");
    cut = request;
    cut.stop_ids = {stream[request.prompt.size() + static_cast<std::size_t>(place) - 1]};
    const Output stopped = plain(*trio_, cut);
    expect_equal(speculate(*trio_, cut, {.draft_length = 8}, &oracle), stopped, "stop id");
    EXPECT_EQ(stopped.result.stop_reason, StopReason::kStopId);
    cut = request;
    cut.context = static_cast<std::int64_t>(request.prompt.size()) + place;
    const Output full = plain(*trio_, cut);
    expect_equal(speculate(*trio_, cut, {.draft_length = 8}, &oracle), full, "context");
    EXPECT_EQ(full.result.stop_reason, StopReason::kContext);
  }
}

TEST_P(Losslessness, AnOracleCommitsTheWholeBlockAndAWrongDrafterOneToken) {
  SequenceRng rng(4);
  Request request;
  request.prompt = random_tokens(rng, 20, trio_->vocab_size());
  request.max_tokens = 1 + 5 * 17;  // the first token comes out of the prefill
  const Tokens stream = long_stream(*trio_, request);
  const auto truth = [&](Position p) { return stream[static_cast<std::size_t>(p)]; };
  ScriptedSource oracle([&](Position p, std::size_t) { return truth(p); });
  ScriptedSource liar([&](Position p, std::size_t) {
    return (truth(p) + 1) % static_cast<TokenId>(trio_->vocab_size());
  });
  const GenerateResult best = speculate(*trio_, request, {.draft_length = 16}, &oracle).result;
  ASSERT_EQ(best.rounds.size(), 5U);
  for (const RoundRecord& round : best.rounds) {
    EXPECT_EQ(round.committed, 17);
    EXPECT_EQ(round.accepted, 16);
  }
  EXPECT_EQ(best.acceptance_length(), 17.0);
  const GenerateResult worst = speculate(*trio_, request, {.draft_length = 16}, &liar).result;
  EXPECT_EQ(worst.rounds.size(), static_cast<std::size_t>(request.max_tokens - 1));
  EXPECT_EQ(worst.accepted, 0);
  EXPECT_EQ(worst.acceptance_length(), 1.0);
}

// Rounds with random acceptance, then the logits of every position around the ring's wrap.
TEST_P(Losslessness, LogitsAfterRandomRollbacksAreThoseOfAFreshPrefill) {
  SequenceRng rng(8);
  const std::int64_t window = trio_->window == 0 ? 12 : trio_->window;
  const SessionOptions options{.context = 5 * window + 160, .max_rows = 9};
  const auto timeline = trio_->model->timeline(options, 9);
  const dflash::Drafter& drafter = *trio_->drafters.front();
  const auto dflash = trio_->model->dflash_source(drafter, options);
  timeline->set_tap_sink(dflash.get());
  const auto fresh = trio_->model->timeline(options, 1);
  ASSERT_OK(timeline->push(random_tokens(rng, 3, trio_->vocab_size())));
  ASSERT_OK(timeline->run_pending());
  ASSERT_OK(timeline->push(random_tokens(rng, 1, trio_->vocab_size())));
  const auto last = static_cast<std::size_t>(std::min<std::int64_t>(4 * window, 3 * window + 60));
  while (timeline->tokens().size() < last) {
    const Tokens drafts = random_tokens(rng, rng.below(9), trio_->vocab_size());
    const auto logits = run_drafts(*timeline, drafts);
    ASSERT_OK(logits);
    const std::size_t accepted = rng.below(drafts.size() + 1);
    timeline->accept(std::span(drafts).first(accepted));
    // The row after the accepted drafts is what a fresh run gives.
    const float* row = logits->data + static_cast<std::int64_t>(accepted) * logits->width;
    const std::vector<float> got(row, row + logits->width);
    if (timeline->tokens().size() % 3 == 0 || trio_->window < 20) {
      ASSERT_OK(fresh->rewind(0));
      ASSERT_OK(fresh->push(timeline->tokens()));
      ASSERT_EQ(got, logits_behind(*fresh)) << "after " << timeline->tokens().size();
    }
    timeline->accept(random_tokens(rng, 1, trio_->vocab_size()));
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets,
                         Losslessness,
                         testing::ValuesIn(kTargets),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Losslessness on every backend and compute mode, in fewer cases: the reference is slow.
class LosslessnessOnBackends : public testing::TestWithParam<std::tuple<BackendChoice, Compute>> {};

TEST_P(LosslessnessOnBackends, GivesThePlainTokens) {
  const auto& [backend, compute] = GetParam();
  const auto trio = load_trio("gemma4-moe", backend, compute);
  ASSERT_NE(trio, nullptr);
  SequenceRng rng(9);
  for (int n = 0; n < 4; ++n) {
    Request request;
    request.prompt = random_tokens(rng, 1 + rng.below(40), trio->vocab_size());
    request.max_tokens = 30;
    request.sampling = random_sampling(rng);
    const Output expected = plain(*trio, request);
    for (const auto& drafter : trio->drafters) {
      const Speculation options{.draft_length = static_cast<std::int64_t>(1 + rng.below(16))};
      expect_equal(speculate(*trio, request, options, nullptr, drafter.get()), expected, "dflash");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllBackends,
                         LosslessnessOnBackends,
                         testing::Combine(testing::ValuesIn(all_backends(2)),
                                          testing::Values(Compute::kF32, Compute::kFast)),
                         [](const auto& test) {
                           return std::get<0>(test.param).label() +
                                  (std::get<1>(test.param) == Compute::kF32 ? "_f32" : "_fast");
                         });

}  // namespace
}  // namespace kakeya::test
