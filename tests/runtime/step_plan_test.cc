// The plan of a scheduler's step as a function: budgets, fairness and progress of random requests.
#include "runtime/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "property.h"

namespace kakeya::test {
namespace {

using Kind = StepCandidate::Kind;

std::int64_t drawn(Choices& choices, std::int64_t least, std::int64_t most) {
  return least + choices.below(static_cast<std::size_t>(most - least + 1));
}

// As SchedulerOptions may be.
StepLimits any_limits(Choices& choices) {
  StepLimits limits;
  limits.max_rows = drawn(choices, 1, 24);
  limits.max_logit_rows = drawn(choices, 1, limits.max_rows);
  limits.prefill_rows = drawn(choices, 1, limits.max_rows);
  return limits;
}

// A prompt that is to be continued, scored in part, or embedded.
StepCandidate any_prompt(Choices& choices) {
  StepCandidate prompt = {.kind = Kind::kPrompt,
                          .pending = drawn(choices, 1, 60),
                          .chunk = drawn(choices, 1, 32),
                          .to_branch = drawn(choices, -3, 20),
                          .most_logit_rows = drawn(choices, 1, 16)};
  prompt.to_logits = prompt.pending - 1;
  const auto kind = choices.below(3);
  if (kind == 1) prompt.to_logits = drawn(choices, -2, prompt.pending - 1);
  if (kind == 2) prompt.to_logits = std::numeric_limits<std::int64_t>::max();
  return prompt;
}

std::vector<StepCandidate> any_running(Choices& choices) {
  std::vector<StepCandidate> running(static_cast<std::size_t>(drawn(choices, 1, 7)));
  for (StepCandidate& each : running) {
    const auto kind = choices.below(3);
    if (kind == 1) each.kind = Kind::kDecodes;
    if (kind == 2) each = any_prompt(choices);
  }
  return running;
}

// One step: what was planned, with some of the drafts that there was room for.
struct Planned {
  std::vector<std::size_t> decoding;
  std::vector<PromptRows> prompts;
  std::int64_t drafts = 0;
};

Planned plan(const std::vector<StepCandidate>& running,
             const StepLimits& limits,
             StepTurns& turns,
             Choices& choices) {
  Planned step;
  plan_rounds(running, limits, turns, step.decoding);
  const std::int64_t rounds = std::ssize(step.decoding);
  const std::int64_t room = draft_rows(running, limits, {.rows = rounds, .logit_rows = rounds});
  if (rounds > 0 && room > 0) step.drafts = drawn(choices, 0, room);
  const StepRows taken = {.rows = rounds + step.drafts, .logit_rows = rounds + step.drafts};
  plan_prompts(running, limits, taken, turns, step.prompts);
  return step;
}

void check_budgets(const std::vector<StepCandidate>& running,
                   const StepLimits& limits,
                   const Planned& step) {
  std::int64_t rows = std::ssize(step.decoding) + step.drafts;
  std::int64_t logits = rows;
  std::int64_t prompt_rows = 0;
  std::set<std::size_t> seen;
  RC_ASSERT(std::ranges::is_sorted(step.decoding));
  for (const std::size_t index : step.decoding) {
    RC_ASSERT(running[index].kind == Kind::kDecodes);
    RC_ASSERT(seen.insert(index).second);
  }
  for (const PromptRows& prompt : step.prompts) {
    const StepCandidate& of = running[prompt.index];
    RC_ASSERT(of.kind == Kind::kPrompt);
    RC_ASSERT(seen.insert(prompt.index).second);
    RC_ASSERT(prompt.rows >= 1 && prompt.rows <= std::min(of.pending, of.chunk));
    RC_ASSERT(of.to_branch <= 0 || prompt.rows <= of.to_branch);
    RC_ASSERT(prompt.logit_rows >= 0 && prompt.logit_rows <= of.most_logit_rows);
    prompt_rows += prompt.rows;
    logits += prompt.logit_rows;
  }
  rows += prompt_rows;
  RC_ASSERT(rows <= limits.max_rows);
  RC_ASSERT(logits <= limits.max_logit_rows);
  if (!step.decoding.empty()) RC_ASSERT(prompt_rows <= limits.prefill_rows);
}

TEST(StepPlan, StaysWithinItsBudgetsAndStarvesNobody) {
  expect_property("budgets, fairness", [] {
    Choices choices = Choices::any(200);
    const StepLimits limits = any_limits(choices);
    std::vector<StepCandidate> running = any_running(choices);
    StepTurns turns;
    std::vector<int> waited(running.size());  // steps since it had a row
    for (int number = 0; number < 60; ++number) {
      const Planned step = plan(running, limits, turns, choices);
      check_budgets(running, limits, step);
      for (int& steps : waited) ++steps;
      for (const std::size_t index : step.decoding) waited[index] = 0;
      for (const PromptRows& prompt : step.prompts) {
        StepCandidate& of = running[prompt.index];
        waited[prompt.index] = 0;
        of.pending -= prompt.rows;
        of.to_branch -= prompt.rows;
        of.to_logits -= prompt.rows;
        // Its prompt was for an answer, or for nothing more.
        if (of.pending == 0) of = {.kind = prompt.logit_rows > 0 ? Kind::kDecodes : Kind::kWaits};
      }
      for (std::size_t i = 0; i < running.size(); ++i) {
        if (running[i].kind == Kind::kWaits) continue;
        // Each has its turn, where a pass has room for one row, and for one kind, alone.
        RC_ASSERT(waited[i] <= 2 * static_cast<int>(running.size()) + 2);
      }
    }
  });
}

TEST(StepPlan, DecodersAllHaveARowWhereThereIsRoom) {
  const StepLimits limits = {.max_rows = 16, .max_logit_rows = 8, .prefill_rows = 4};
  std::vector<StepCandidate> running(5, {.kind = Kind::kDecodes});
  running.push_back(
      {.kind = Kind::kPrompt, .pending = 40, .chunk = 512, .to_logits = 39, .most_logit_rows = 8});
  StepTurns turns;
  std::vector<std::size_t> decoding;
  std::vector<PromptRows> prompts;
  plan_rounds(running, limits, turns, decoding);
  EXPECT_EQ(decoding.size(), 5U);
  // One row of logits stays for the prompt's last one, and its rows stay.
  EXPECT_EQ(draft_rows(running, limits, {.rows = 5, .logit_rows = 5}), 2);
  plan_prompts(running, limits, {.rows = 7, .logit_rows = 7}, turns, prompts);
  ASSERT_EQ(prompts.size(), 1U);
  EXPECT_EQ(prompts[0].rows, 4);
  EXPECT_EQ(prompts[0].logit_rows, 0);
  // With nobody decoding it has the whole pass.
  plan_prompts(running, limits, {}, turns, prompts);
  EXPECT_EQ(prompts[0].rows, 16);
}

TEST(StepPlan, NobodyRunningIsNoStep) {
  StepTurns turns;
  std::vector<std::size_t> decoding = {3};
  std::vector<PromptRows> prompts(1);
  plan_rounds({}, {.max_rows = 4, .max_logit_rows = 4, .prefill_rows = 4}, turns, decoding);
  plan_prompts({}, {.max_rows = 4, .max_logit_rows = 4, .prefill_rows = 4}, {}, turns, prompts);
  EXPECT_TRUE(decoding.empty());
  EXPECT_TRUE(prompts.empty());
}

}  // namespace
}  // namespace kakeya::test
