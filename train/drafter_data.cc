#include "drafter_data.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checksum.h"
#include "base/random.h"
#include "base/status.h"

namespace kakeya::train {
namespace {

// Blocks of one reply in a step: they share the context's keys and values.
constexpr std::int64_t kBlocksOfReply = 8;
// Requests of one round.
constexpr std::size_t kRound = 64;

Status reply_round(EngineImpl& engine,
                   std::span<const std::vector<TokenId>> prompts,
                   std::int64_t max_tokens,
                   std::span<Reply> replies) {
  KAKEYA_ASSIGN_OR_RETURN(const auto scheduler, engine.create_scheduler({}));
  Status failed;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    replies[i] = {.ids = prompts[i], .prompt = std::ssize(prompts[i])};
    const std::int64_t room = engine.max_context() - replies[i].prompt;
    const std::int64_t wanted = std::min(max_tokens, room);
    if (wanted < 1) continue;
    Request request{
        .prompt = prompts[i],
        .generate = {.max_tokens = wanted, .draft_length = 0},
        .session = SessionOptions{.context = replies[i].prompt + wanted, .drafting = false}};
    request.on_end = [&failed, &reply = replies[i]](RequestId /*id*/, const RequestResult& result) {
      if (!result.status && failed) failed = result.status;
      reply.ids.insert(reply.ids.end(), result.generated.ids.begin(), result.generated.ids.end());
    };
    KAKEYA_TRY(scheduler->add(std::move(request)));
  }
  for (bool more = true; more;) {
    KAKEYA_ASSIGN_OR_RETURN(more, scheduler->step());
  }
  return failed;
}

Status take_taps(EngineImpl& engine, std::span<const std::int64_t> layers, Reply& reply) {
  constexpr std::int64_t kChunk = 512;
  const std::int64_t length = std::ssize(reply.ids);
  KAKEYA_ASSIGN_OR_RETURN(
      const auto timeline,
      engine.create_timeline(
          {.context = length, .max_rows = std::min(length, kChunk), .drafting = false}, 1));
  const std::int64_t width = std::ssize(layers) * engine.hidden_size();
  reply.taps.assign(static_cast<std::size_t>(length * width), 0.0F);
  for (std::int64_t first = 0; first < length; first += kChunk) {
    const std::int64_t rows = std::min(kChunk, length - first);
    KAKEYA_TRY(timeline->forward(std::span(reply.ids).subspan(static_cast<std::size_t>(first),
                                                              static_cast<std::size_t>(rows)),
                                 {.logits = {nullptr, 0, engine.vocab_size()},
                                  .tap_points = layers,
                                  .taps = {reply.taps.data() + first * width, rows, width}}));
  }
  if (!std::ranges::all_of(reply.taps, [](float value) { return std::isfinite(value); })) {
    return data_loss("{}: expected finite outputs of its layers, got others", engine.model_dir());
  }
  return {};
}

}  // namespace

Result<std::vector<Reply>> make_replies(EngineImpl& engine,
                                        std::span<const std::vector<TokenId>> prompts,
                                        std::int64_t max_tokens,
                                        const DataProgress& progress) {
  std::vector<Reply> replies(prompts.size());
  for (std::size_t done = 0; done < prompts.size(); done += kRound) {
    if (progress) progress(static_cast<std::int64_t>(done), std::ssize(prompts));
    const std::size_t count = std::min(kRound, prompts.size() - done);
    KAKEYA_TRY(reply_round(engine, prompts.subspan(done, count), max_tokens,
                           std::span(replies).subspan(done, count)));
  }
  if (progress) progress(std::ssize(prompts), std::ssize(prompts));
  return replies;
}

Status add_taps(EngineImpl& engine,
                std::span<const std::int64_t> layers,
                std::span<Reply> replies,
                const DataProgress& progress) {
  for (std::size_t i = 0; i < replies.size(); ++i) {
    KAKEYA_TRY(take_taps(engine, layers, replies[i]));
    if (progress) progress(static_cast<std::int64_t>(i) + 1, std::ssize(replies));
  }
  return {};
}

std::uint64_t hash_of(std::span<const Reply> replies) {
  std::uint64_t hash = 0;
  for (const Reply& reply : replies) {
    hash = checksum(std::as_bytes(std::span(reply.ids)), hash);
    hash = checksum(std::as_bytes(std::span(&reply.prompt, 1)), hash);
    hash = checksum(std::as_bytes(std::span(reply.taps)), hash);
  }
  return hash;
}

LabelledBlocks make_blocks(const Reply& reply,
                           std::span<const std::int64_t> anchors,
                           std::int64_t block_size,
                           std::int64_t tap_width) {
  LabelledBlocks made;
  std::int64_t context = 1;  // MLX has no use for products without rows
  for (const std::int64_t anchor : anchors) {
    context = std::max(context, anchor);
    made.blocks.anchors.push_back(static_cast<std::int32_t>(anchor));
    made.blocks.first_ids.push_back(reply.ids[static_cast<std::size_t>(anchor)]);
    for (std::int64_t p = anchor + 1; p < anchor + block_size; ++p) {
      const bool inside = p < std::ssize(reply.ids);
      made.labels.push_back(inside ? reply.ids[static_cast<std::size_t>(p)] : -1);
    }
  }
  made.blocks.taps.assign(reply.taps.begin(), reply.taps.begin() + context * tap_width);
  return made;
}

std::vector<LabelledBlocks> draw_blocks(std::span<const Reply> replies,
                                        std::int64_t anchors,
                                        std::int64_t block_size,
                                        std::int64_t tap_width,
                                        std::uint64_t seed,
                                        std::int64_t step) {
  std::vector<std::int64_t> ends;  // of the anchors of all replies up to one
  for (const Reply& reply : replies) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + reply.num_anchors());
  }
  SequenceRng rng((seed * 0x9e3779b97f4a7c15U) ^ (static_cast<std::uint64_t>(step) << 20));
  std::vector<LabelledBlocks> drawn;
  for (std::int64_t left = anchors; left > 0; left -= kBlocksOfReply) {
    const auto at = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(ends.back())));
    const auto index = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
    const Reply& reply = replies[static_cast<std::size_t>(index)];
    std::vector<std::int64_t> all(static_cast<std::size_t>(reply.num_anchors()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = reply.first_anchor() + static_cast<std::int64_t>(i);
    }
    // The first of a shuffle.
    const auto count =
        static_cast<std::size_t>(std::min({left, kBlocksOfReply, reply.num_anchors()}));
    for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + rng.below(all.size() - i)]);
    drawn.push_back(make_blocks(reply, std::span(all).first(count), block_size, tap_width));
  }
  return drawn;
}

std::vector<LabelledBlocks> spread_blocks(std::span<const Reply> replies,
                                          std::int64_t most,
                                          std::int64_t block_size,
                                          std::int64_t tap_width) {
  std::int64_t all = 0;
  for (const Reply& reply : replies) all += reply.num_anchors();
  const std::int64_t distance =
      std::max<std::int64_t>(1, (all + most - 1) / std::max<std::int64_t>(most, 1));
  std::vector<LabelledBlocks> spread;
  std::int64_t number = 0;
  for (const Reply& reply : replies) {
    std::vector<std::int64_t> anchors;
    for (std::int64_t i = 0; i < reply.num_anchors(); ++i) {
      if (number++ % distance == 0) anchors.push_back(reply.first_anchor() + i);
    }
    if (!anchors.empty()) spread.push_back(make_blocks(reply, anchors, block_size, tap_width));
  }
  return spread;
}

}  // namespace kakeya::train
