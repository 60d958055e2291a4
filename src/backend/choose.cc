#include "backend/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "sampling/logprobs.h"

namespace kakeya {

Result<TokenId> choose_row(const SequenceChoice& choice, std::size_t row, std::span<float> logits) {
  const Position position = choice.position + static_cast<Position>(row);
  KAKEYA_TRY(check_logits(logits, position));
  // The sampler overwrites what it chooses from.
  if (!choice.raw_logits.empty()) std::ranges::copy(logits, choice.raw_logits.begin());
  KAKEYA_TRY(choice.sampler->constrain(logits, position));
  return choice.sampler->sample(logits, position);
}

TokenId draft_row(const BlockChoice& choice, std::size_t row, std::span<float> logits) {
  logits[static_cast<std::size_t>(choice.never)] = -std::numeric_limits<float>::infinity();
  return choice.sampler->draft(logits, choice.position + static_cast<Position>(row));
}

void list_largest_of(std::span<const float> logits, TokenId never, std::span<TokenLogit> out) {
  std::ranges::fill(out, TokenLogit{0, kNever});
  if (out.empty()) return;
  // A heap whose first is the worst of those kept. Few logits of a row ever enter.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const TokenLogit each = {static_cast<TokenId>(i), logits[i]};
    if (each.id == never || std::isnan(each.logit)) continue;
    if (kept == out.size()) {
      if (!(each.logit > out.front().logit)) continue;
      std::ranges::pop_heap(out, IsBetter());
      --kept;
    }
    out[kept++] = each;
    std::ranges::push_heap(out.first(kept), IsBetter());
  }
  std::ranges::sort_heap(out.first(kept), IsBetter());
}

void accept_choices(SequenceChoice& choice,
                    const std::function<Result<TokenId>(std::size_t)>& choose) {
  choice.count = 0;
  choice.status = {};
  for (std::size_t row = 0; row <= choice.drafts.size() && choice.count < choice.most; ++row) {
    const auto id = choose(row);
    if (!id) {
      choice.status = Unexpected(id.error());
      return;
    }
    choice.status = choice.sampler->add_output_token(*id);
    if (!choice.status) return;
    if (!choice.raw_logits.empty()) {
      choice.logprobs->push_back(token_logprobs(choice.raw_logits, *id, choice.top_logprobs));
    }
    choice.chosen[static_cast<std::size_t>(choice.count++)] = *id;
    // The next row counts only if it was computed from what was chosen.
    if (row == choice.drafts.size() || *id != choice.drafts[row]) return;
    if (std::find(choice.stop_ids.begin(), choice.stop_ids.end(), *id) != choice.stop_ids.end()) {
      return;
    }
  }
}

void choose_on_host(SequenceChoice& choice, HostRows logits) {
  accept_choices(choice, [&](std::size_t row) {
    return choose_row(choice, row, logits.row(static_cast<std::int64_t>(row)));
  });
}

void choose_on_host(BlockChoice& choice, HostRows logits) {
  for (std::size_t i = 0; i < choice.out.size(); ++i) {
    choice.out[i] = draft_row(choice, i, logits.row(static_cast<std::int64_t>(i)));
  }
  choice.sampler->end_drafts();
}

}  // namespace kakeya
