// Requests that share the passes of a scheduler against the same requests alone: is every answer
// the same, is everybody served alike, how long does one wait, and what is gained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/multitenant/tenant_arms.h"
#include "eval/prompts/prompt_set.h"
#include "eval/report/part_journal.h"
#include "eval/report/report_fields.h"
#include "kakeya/options.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

// The answer to one request.
struct TenantAnswer {
  std::vector<TokenId> ids = {};
  StopReason stop_reason = StopReason::kMaxTokens;
  std::string error = {};  // empty: none
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  double queue_seconds = 0.0;
  double first_token_seconds = 0.0;  // since it was asked
  double longest_gap_seconds = 0.0;  // between two of its tokens
  double seconds = 0.0;              // until its last token

  double tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(ids.size()) / seconds : 0.0;
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
  // The fairness of an arm of equal lengths, over tokens a second.
  double fairness() const;
  bool equal() const;
};

struct TenantOptions {
  std::int64_t max_tokens = 64;
  int pairs = 5;  // timed, behind one that is not
  SessionOptions session = {};
  SamplingOptions sampling = {};  // of sampled arms; the seed of request i is seed + i
  std::int64_t draft_length = kAutoDraftLength;  // of arms with drafts
  std::function<std::string(std::span<const TokenId>)> hash = {};
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};  // in runs
  PartJournal* journal = nullptr;                                               // of arms
};

// The index of the first token that differs: where one list is the beginning of the other, its
// length. Nothing if they are equal.
std::optional<std::int64_t> first_difference(std::span<const TokenId> a,
                                             std::span<const TokenId> b);

// Takes what a request gave among others and alone into its row. The first call decides what the
// row shows; a difference or an error of any call stays.
void compare_tenant(TenantRequest& request,
                    const TenantAnswer& together,
                    const TenantAnswer& solo,
                    const TenantOptions& options);

// Every prompt is one request, all at once and each alone, in turns. Errors: as create_scheduler()
// and PartJournal::result; kInvalidArgument for options out of range. What fails of a request is in
// its row.
Result<std::vector<TenantArmReport>> run_tenants(EngineImpl& engine,
                                                 std::span<const EvalPrompt> prompts,
                                                 std::span<const TenantArm> arms,
                                                 const TenantOptions& options);

// As journals have it. Errors: kDataLoss for what is none.
Report tenant_arm_json(const TenantArmReport& report);
Result<TenantArmReport> parse_tenant_arm(const Report& json, const TenantArm& arm);

// Arms and outputs_equal, added to a report; ids are not in it.
void add_tenants_json(Report& report, std::span<const TenantArmReport> arms);

}  // namespace kakeya::eval
