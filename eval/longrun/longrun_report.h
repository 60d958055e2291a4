// The report of `kakeya eval longrun`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/longrun/longrun_buckets.h"
#include "eval/report/describe.h"
#include "eval/report/probe_speeds.h"

namespace kakeya::eval {

// The flags of a run, as the report repeats them.
struct LongRunFlagValues {
  double minutes = 0.0;
  std::int64_t tokens = 0;
  std::int64_t buckets = 0;
  std::int64_t sessions = 1;
  std::int64_t context = 0;
  std::int64_t window = 0;
  std::int64_t sink = 0;
  std::string evicted_full = {};
  std::string evicted_sliding = {};
  std::string set = {};
  std::int64_t prompts = 0;
  std::string draft = {};
  std::string draft_length = {};
  double temperature = 0.0;
  std::uint64_t seed = 0;
};

// The answers to one prompt of the set.
struct LongRunAnswers {
  std::string prompt = {};
  std::int64_t answers = 0;  // that went on until the context was full
  std::int64_t equal = 0;    // to the first one, id for id, itself included
  std::string sha256 = {};   // of the ids of the first one; empty without any
};

struct LongRunFailure {
  std::int64_t conversation = 0;  // from 0, in the order in which they began
  std::string prompt = {};
  double seconds = 0.0;  // since the run began
  std::string error = {};
};

struct LongRunReport {
  LongRunFlagValues options = {};
  ProbeSpeeds probe_gb_per_s = {};
  bool complete = false;  // false: interrupted, or too many conversations failed
  double seconds = 0.0;
  std::vector<LongRunBucket> buckets = {};
  std::vector<LongRunAnswers> prompts = {};  // those that were asked, in the order of the set
  std::vector<LongRunFailure> failures = {};

  std::int64_t tokens() const;
  std::int64_t conversations() const;
  bool answers_equal() const;
  // The verdict of the buckets and of the answers.
  LongRunVerdict verdict() const;
};

template <typename Visitor, MaybeConst<LongRunFlagValues> Options>
void describe(Visitor& visitor, Options& options) {
  using enum FieldRole;
  visitor.field("minutes", options.minutes, kChecked);
  visitor.field("tokens", options.tokens, kStated);
  visitor.field("buckets", options.buckets, kChecked);
  visitor.field("sessions", options.sessions, kStated);
  visitor.field("context", options.context, kStated);
  visitor.field("window", options.window, kStated);
  visitor.field("sink", options.sink, kStated);
  visitor.field("evicted_full", options.evicted_full, kStated);
  visitor.field("evicted_sliding", options.evicted_sliding, kStated);
  visitor.field("set", options.set, kStated);
  visitor.field("prompts", options.prompts, kStated);
  visitor.field("draft", options.draft, kStated);
  visitor.field("draft_length", options.draft_length, kStated);
  visitor.field("temperature", options.temperature, kStated);
  visitor.field("seed", options.seed, kStated);
}

template <typename Visitor, MaybeConst<LongRunAnswers> Answers>
void describe(Visitor& visitor, Answers& answers) {
  using enum FieldRole;
  visitor.field("prompt", answers.prompt, kStated);
  visitor.field("answers", answers.answers, kChecked);
  visitor.field("equal", answers.equal, kChecked);
  visitor.optional("sha256", answers.sha256, kResult, FieldType::kHash);
}

template <typename Visitor, MaybeConst<LongRunFailure> Failure>
void describe(Visitor& visitor, Failure& failure) {
  using enum FieldRole;
  visitor.field("conversation", failure.conversation, kStated);
  visitor.field("prompt", failure.prompt, kStated);
  visitor.field("seconds", failure.seconds, kStated);
  visitor.field("error", failure.error, kStated);
}

template <typename Visitor, MaybeConst<LongRunReport> Run>
void describe(Visitor& visitor, Run& run) {
  using enum FieldRole;
  visitor.object("options", run.options);
  visitor.object("probe_gb_per_s", run.probe_gb_per_s);
  visitor.field("complete", run.complete, kChecked);
  visitor.field("seconds", run.seconds, kChecked, FieldType::kSeconds);
  visitor.derived("conversations", run, &LongRunReport::conversations, "counts");
  visitor.derived("tokens", run, &LongRunReport::tokens, "counts");
  visitor.list("buckets", run.buckets, HowMany::kOneOrMore);
  visitor.list("prompts", run.prompts, HowMany::kOneOrMore);
  visitor.list("failures", run.failures, HowMany::kAny);
  const LongRunVerdict verdict = run.verdict();
  visitor.object("verdict", verdict);
}

}  // namespace kakeya::eval
