// Requests that share the passes of a scheduler against the same requests alone: is every answer
// the same, is everybody served alike, how long does one wait, and what is gained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/multitenant/multitenant_report.h"
#include "eval/prompts/prompt_set.h"
#include "eval/report/part_journal.h"
#include "kakeya/options.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

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

}  // namespace kakeya::eval
