// The report of `kakeya eval multitenant`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/multitenant/tenant_arms.h"
#include "eval/report/describe.h"
#include "eval/report/probe_speeds.h"
#include "kakeya/session.h"
#include "kakeya/types.h"

namespace kakeya::eval {

// The flags of a run, as the report repeats them.
struct TenantFlagValues {
  std::int64_t sessions = 0;
  std::int64_t pairs = 0;
  std::int64_t max_tokens = 0;
  std::int64_t context = 0;
  std::int64_t limit = 0;
  std::string draft = {};
  std::string draft_length = {};
  double temperature = 0.0;
  std::uint64_t seed = 0;
};

// The answer to one request.
struct TenantAnswer {
  std::vector<TokenId> ids = {};  // not in reports
  std::int64_t tokens = 0;        // ids, as reports have them
  std::string stop_reason = std::string(stop_reason_name(StopReason::kMaxTokens));
  std::string error = {};  // empty: none
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  double queue_seconds = 0.0;
  double first_token_seconds = 0.0;  // since it was asked
  double longest_gap_seconds = 0.0;  // between two of its tokens
  double seconds = 0.0;              // until its last token

  double tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
  }
};

// A request: its answer among the others, of the first pair that counts, and the comparison with
// what it gave alone, of all pairs.
struct TenantRequest {
  std::string prompt = {};
  std::int64_t prompt_tokens = 0;
  TenantAnswer together = {};
  std::string sha256 = {};  // of the ids; empty after an error
  std::string solo_sha256 = {};
  std::optional<std::int64_t> differs_at = {};  // first token that differs, in any pair
  std::string error = {};                       // of either, in any pair

  bool equal() const { return error.empty() && !differs_at; }
};

struct TenantArmReport {
  TenantArm arm = {};
  std::vector<TenantRequest> requests = {};
  // All requests, of each pair: one after the other, each in a session of its own, and at once.
  std::vector<double> solo_seconds = {};
  std::vector<double> together_seconds = {};
  std::uint64_t alone_bytes = 0;     // the most that one of the sessions adds to the ledger
  std::uint64_t together_bytes = 0;  // the most that all of them add

  std::int64_t tokens() const;
  double solo_tokens_per_second() const;
  double together_tokens_per_second() const;
  double throughput_ratio() const;  // median of the pairs' solo over together
  double longest_wait_seconds() const;
  double longest_gap_seconds() const;
  double bytes_ratio() const;  // together over so many times alone
  // The fairness over tokens a second, which says something of equal lengths alone.
  double fairness() const;
  std::optional<double> fairness_of_equal_lengths() const;
  bool equal() const;
};

struct TenantsReport {
  TenantFlagValues options = {};
  ProbeSpeeds probe_gb_per_s = {};
  std::vector<TenantArmReport> arms = {};

  bool outputs_equal() const;
};

template <typename Visitor, MaybeConst<TenantFlagValues> Options>
void describe(Visitor& visitor, Options& options) {
  using enum FieldRole;
  visitor.field("sessions", options.sessions, kChecked);
  visitor.field("pairs", options.pairs, kChecked);
  visitor.field("max_tokens", options.max_tokens, kChecked);
  visitor.field("context", options.context, kStated);
  visitor.field("limit", options.limit, kStated);
  visitor.field("draft", options.draft, kStated);
  visitor.field("draft_length", options.draft_length, kStated);
  visitor.field("temperature", options.temperature, kStated);
  visitor.field("seed", options.seed, kStated);
}

template <typename Visitor, MaybeConst<TenantRequest> Request>
void describe(Visitor& visitor, Request& request) {
  using enum FieldRole;
  auto& answer = request.together;
  visitor.field("prompt", request.prompt, kStated);
  visitor.field("prompt_tokens", request.prompt_tokens, kChecked);
  visitor.optional("error", request.error, kStated);
  visitor.group("tokens", !request.sha256.empty(), [&](auto& members) {
    members.field("tokens", answer.tokens, kChecked);
    members.field("sha256", request.sha256, kChecked, FieldType::kHash);
    members.field("solo_sha256", request.solo_sha256, kChecked, FieldType::kHash);
    members.optional("differs_at", request.differs_at, kChecked);
    members.field("stop_reason", answer.stop_reason, kStated);
    members.field("drafted", answer.drafted, kMeasured);
    members.field("accepted", answer.accepted, kMeasured);
    members.field("queue_seconds", answer.queue_seconds, kStated);
    members.field("first_token_seconds", answer.first_token_seconds, kMeasured);
    members.field("longest_gap_seconds", answer.longest_gap_seconds, kMeasured);
    members.field("seconds", answer.seconds, kMeasured, FieldType::kSeconds);
    members.derived("tokens_per_second", answer, &TenantAnswer::tokens_per_second, "headline");
  });
  visitor.kept("ids", answer.ids);
}

template <typename Visitor, MaybeConst<TenantArmReport> Arm>
void describe(Visitor& visitor, Arm& arm) {
  using enum FieldRole;
  visitor.field("arm", arm.arm.name, kChecked);
  visitor.field("drafts", arm.arm.drafts, kChecked);
  visitor.field("sampled", arm.arm.sampled, kChecked);
  visitor.field("equal_lengths", arm.arm.equal_lengths, kChecked);
  visitor.list("requests", arm.requests, HowMany::kOneOrMore);
  visitor.derived("tokens", arm, &TenantArmReport::tokens, "counts");
  visitor.field("solo_seconds", arm.solo_seconds, kMeasured, FieldType::kSeconds);
  visitor.field("together_seconds", arm.together_seconds, kMeasured, FieldType::kSeconds);
  visitor.derived("solo_tokens_per_second", arm, &TenantArmReport::solo_tokens_per_second,
                  "headline");
  visitor.derived("together_tokens_per_second", arm, &TenantArmReport::together_tokens_per_second,
                  "headline");
  visitor.derived("throughput_ratio", arm, &TenantArmReport::throughput_ratio, "headline");
  visitor.derived("longest_wait_seconds", arm, &TenantArmReport::longest_wait_seconds, "headline");
  visitor.derived("longest_gap_seconds", arm, &TenantArmReport::longest_gap_seconds, "headline");
  visitor.derived("fairness", arm, &TenantArmReport::fairness_of_equal_lengths, "headline",
                  FieldType::kShare);
  visitor.field("alone_bytes", arm.alone_bytes, kMeasured);
  visitor.field("together_bytes", arm.together_bytes, kMeasured);
  visitor.derived("bytes_ratio", arm, &TenantArmReport::bytes_ratio, "bytes");
}

template <typename Visitor, MaybeConst<TenantsReport> Tenants>
void describe(Visitor& visitor, Tenants& report) {
  visitor.object("options", report.options);
  visitor.object("probe_gb_per_s", report.probe_gb_per_s);
  visitor.list("arms", report.arms, HowMany::kOneOrMore);
  visitor.derived("outputs_equal", report, &TenantsReport::outputs_equal, "lossless");
}

}  // namespace kakeya::eval
