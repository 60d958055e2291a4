#include "eval/drafter/drafter_parity.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/status.h"
#include "eval/drafter/drafter_pass.h"

namespace kakeya::eval {
namespace {

// A prompt with the target's reply, and what its tapped layers gave.
struct TargetRun {
  std::vector<TokenId> ids;
  std::vector<float> taps;  // [ids, T * D]
};

std::int64_t tap_width(const DrafterConfig& config) {
  return std::ssize(config.target_layer_ids) * config.layers.hidden_size;
}

// Two drafters that can be given the same, and blocks that both can fill.
Status check_drafters(const EngineImpl& reference,
                      const EngineImpl& other,
                      const DrafterParityOptions& options) {
  if (reference.drafter() == nullptr || other.drafter() == nullptr) {
    return error(StatusCode::kFailedPrecondition, "expected a drafter, got none: --draft names it");
  }
  const DrafterConfig& one = reference.drafter()->config();
  const DrafterConfig& two = other.drafter()->config();
  if (one.target_layer_ids != two.target_layer_ids || tap_width(one) != tap_width(two) ||
      one.layers.vocab_size != two.layers.vocab_size || one.mask_token_id != two.mask_token_id) {
    return invalid_argument(
        "expected two drafters of the same tapped layers, width, vocabulary and mask token");
  }
  const std::int64_t most = std::min(one.block_size, two.block_size);
  if (options.block_tokens > most) {
    return invalid_argument("a block has at most {} tokens in these drafters, got {}", most,
                            options.block_tokens);
  }
  return {};
}

Result<TargetRun> run_target(EngineImpl& engine,
                             const EvalPrompt& prompt,
                             const DrafterParityOptions& options) {
  SessionOptions session = engine.session_options();
  session.drafting = false;
  const std::int64_t reply = options.blocks * options.block_tokens;
  TargetRun run{.ids = prompt.ids, .taps = {}};
  session.context = std::ssize(run.ids) + reply;
  KAKEYA_ASSIGN_OR_RETURN(const auto plain, engine.create_session(session));
  KAKEYA_TRY(plain->append(run.ids));
  KAKEYA_ASSIGN_OR_RETURN(
      const GenerateResult result,
      plain->generate({.max_tokens = reply, .draft_length = 0, .ignore_model_stop_ids = true}));
  run.ids.insert(run.ids.end(), result.ids.begin(), result.ids.end());

  const DrafterConfig& config = engine.drafter()->config();
  const std::int64_t width = tap_width(config);
  const std::int64_t chunk = std::min<std::int64_t>(session.max_rows, std::ssize(run.ids));
  KAKEYA_ASSIGN_OR_RETURN(
      const auto timeline,
      engine.create_timeline({.context = session.context, .max_rows = chunk}, 1));
  run.taps.resize(run.ids.size() * static_cast<std::size_t>(width));
  for (std::int64_t begin = 0; begin < std::ssize(run.ids); begin += chunk) {
    const std::int64_t rows = std::min(chunk, std::ssize(run.ids) - begin);
    KAKEYA_TRY(
        timeline->forward(std::span<const TokenId>(run.ids).subspan(static_cast<std::size_t>(begin),
                                                                    static_cast<std::size_t>(rows)),
                          {.logits = {},
                           .tap_points = config.target_layer_ids,
                           .taps = {run.taps.data() + begin * width, rows, width}}));
  }
  return run;
}

// The likeliest token of each row but the first, which is known.
std::vector<TokenId> proposals(const DrafterOutput& output, const DrafterConfig& config) {
  const auto vocabulary = static_cast<std::size_t>(config.layers.vocab_size);
  std::vector<TokenId> ids;
  for (std::size_t row = 1; row < output.logits.size() / vocabulary; ++row) {
    const float* logits = output.logits.data() + row * vocabulary;
    TokenId best = config.mask_token_id == 0 ? 1 : 0;
    for (TokenId id = 0; id < config.layers.vocab_size; ++id) {
      if (id != config.mask_token_id && logits[id] > logits[best]) best = id;
    }
    ids.push_back(best);
  }
  return ids;
}

double largest_difference(std::span<const float> reference, std::span<const float> other) {
  double squares = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    squares += static_cast<double>(reference[i]) * reference[i];
    largest = std::max(largest, std::abs(static_cast<double>(reference[i]) - other[i]));
  }
  const double size =
      std::sqrt(squares / static_cast<double>(std::max<std::size_t>(reference.size(), 1)));
  return size > 0.0 ? largest / size : largest;
}

}  // namespace

Result<std::vector<ParityBlock>> compare_drafters(EngineImpl& reference,
                                                  EngineImpl& other,
                                                  const EvalPrompt& prompt,
                                                  const DrafterParityOptions& options) {
  KAKEYA_TRY(check_drafters(reference, other, options));
  const auto named = [&](const Error& error) { return Unexpected(error.with_context(prompt.id)); };
  if (prompt.ids.empty()) return invalid_argument("{}: expected a token or more", prompt.id);
  const auto run = run_target(reference, prompt, options);
  if (!run) return named(run.error());
  const DrafterConfig& config = reference.drafter()->config();
  std::vector<ParityBlock> blocks;
  for (std::int64_t i = 0; i < options.blocks; ++i) {
    ParityBlock& block = blocks.emplace_back(ParityBlock{.prompt = prompt.id});
    block.context = std::ssize(prompt.ids) + i * options.block_tokens;
    DrafterInput input{.taps = {}, .context = block.context, .block = {}};
    input.taps.assign(run->taps.begin(), run->taps.begin() + block.context * tap_width(config));
    input.block.assign(static_cast<std::size_t>(options.block_tokens), config.mask_token_id);
    input.block.front() = run->ids[static_cast<std::size_t>(block.context)];
    const auto expected = run_drafter(reference, *reference.drafter(), input);
    if (!expected) return named(expected.error());
    const auto got = run_drafter(other, *other.drafter(), input);
    if (!got) return named(got.error());
    block.reference = proposals(*expected, config);
    block.drafted = proposals(*got, config);
    block.difference = largest_difference(expected->logits, got->logits);
  }
  return blocks;
}

}  // namespace kakeya::eval
