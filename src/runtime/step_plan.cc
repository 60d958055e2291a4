#include "runtime/step_plan.h"

#include <algorithm>
#include <optional>

namespace kakeya {
namespace {

using Kind = StepCandidate::Kind;

bool has_prompts(std::span<const StepCandidate> running) {
  return std::ranges::any_of(running, [](const auto& each) { return each.kind == Kind::kPrompt; });
}

// The logits that prompts may want of a step: one for the last row of each, more where rows are
// scored, as many as the greediest wants.
std::int64_t prompt_logits(std::span<const StepCandidate> running, const StepLimits& limits) {
  std::int64_t most = 0;
  for (const StepCandidate& each : running) {
    if (each.kind != Kind::kPrompt) continue;
    const std::int64_t rows = std::min(each.pending, limits.prefill_rows);
    const std::int64_t wanted = std::min(rows - each.to_logits, each.most_logit_rows);
    most = std::max({most, std::int64_t{1}, std::min(wanted, limits.max_logit_rows / 2)});
  }
  return most;
}

// `rows`, or as many of them as there is room for with their logits.
std::int64_t fitting_rows(const StepCandidate& prompt, std::int64_t rows, std::int64_t logit_room) {
  const std::int64_t room = std::min(logit_room, prompt.most_logit_rows);
  if (prompt.to_logits >= rows) return rows;
  return std::min(rows, std::max<std::int64_t>(prompt.to_logits, 0) + room);
}

}  // namespace

void plan_rounds(std::span<const StepCandidate> running,
                 const StepLimits& limits,
                 StepTurns& turns,
                 std::vector<std::size_t>& decoding) {
  decoding.clear();
  if (running.empty()) return;
  std::int64_t room = limits.max_logit_rows;
  if (has_prompts(running)) {
    const std::int64_t prompt_rows = std::min(limits.prefill_rows, limits.max_rows / 2);
    room = std::min(limits.max_logit_rows - 1, limits.max_rows - prompt_rows);
  }
  if (room == 0) {
    turns.prompts = !turns.prompts;
    if (turns.prompts) return;
    room = 1;
  }
  std::size_t last = turns.first_round;  // that has a row
  const std::size_t count = running.size();
  for (std::size_t i = 0; i < count && std::ssize(decoding) < room; ++i) {
    const std::size_t index = (turns.first_round + i) % count;
    if (running[index].kind != Kind::kDecodes) continue;
    decoding.push_back(index);
    last = turns.first_round + i;
  }
  turns.first_round = ((std::ssize(decoding) == room ? last : turns.first_round) + 1) % count;
  // Passes of the same sequences are alike from one step to the next, as backends hope that keep
  // what they prepare for one.
  std::ranges::sort(decoding);
}

std::int64_t draft_rows(std::span<const StepCandidate> running,
                        const StepLimits& limits,
                        const StepRows& taken) {
  const std::int64_t prompt_rows = has_prompts(running) ? limits.prefill_rows : 0;
  return std::min(limits.max_rows - taken.rows - prompt_rows,
                  limits.max_logit_rows - taken.logit_rows - prompt_logits(running, limits));
}

void plan_prompts(std::span<const StepCandidate> running,
                  const StepLimits& limits,
                  StepRows taken,
                  StepTurns& turns,
                  std::vector<PromptRows>& prompts) {
  prompts.clear();
  const std::int64_t most = taken.rows == 0 ? limits.max_rows : limits.prefill_rows;
  std::int64_t room = std::min(most, limits.max_rows - taken.rows);
  const std::size_t count = running.size();
  const std::size_t first = turns.first_prompt;
  std::optional<std::size_t> next;  // is first in the next step
  for (std::size_t i = 0; i < count && room > 0; ++i) {
    const std::size_t index = (first + i) % count;
    const StepCandidate& prompt = running[index];
    if (prompt.kind != Kind::kPrompt) continue;
    const std::int64_t most_rows = prompt.to_branch > 0 ? std::min(room, prompt.to_branch) : room;
    const std::int64_t rows =
        fitting_rows(prompt, std::min({most_rows, prompt.pending, prompt.chunk}),
                     limits.max_logit_rows - taken.logit_rows);
    // Whoever is first keeps its turn where it cannot take it; else the turn goes round.
    if (!next) next = rows > 0 ? (index + 1) % count : index;
    if (rows <= 0) continue;
    const std::int64_t logit_rows = std::clamp<std::int64_t>(rows - prompt.to_logits, 0, rows);
    prompts.push_back({.index = index, .rows = rows, .logit_rows = logit_rows});
    room -= rows;
    taken.logit_rows += logit_rows;
  }
  turns.first_prompt = next.value_or(first);
}

}  // namespace kakeya
