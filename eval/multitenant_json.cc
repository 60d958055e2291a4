// Arms of shared runs as reports have them.
#include <algorithm>

#include "multitenant_eval.h"

namespace kakeya::eval {
namespace {

Report request_json(const TenantRequest& request) {
  Report json = {{"prompt", request.prompt}, {"prompt_tokens", request.prompt_tokens}};
  if (!request.error.empty()) json["error"] = request.error;
  if (request.sha256.empty()) return json;
  const TenantAnswer& answer = request.together;
  json["tokens"] = answer.ids.size();
  json["sha256"] = request.sha256;
  json["solo_sha256"] = request.solo_sha256;
  if (request.differs_at) json["differs_at"] = *request.differs_at;
  json["stop_reason"] = stop_reason_name(answer.stop_reason);
  json["drafted"] = answer.drafted;
  json["accepted"] = answer.accepted;
  json["queue_seconds"] = answer.queue_seconds;
  json["first_token_seconds"] = answer.first_token_seconds;
  json["longest_gap_seconds"] = answer.longest_gap_seconds;
  json["seconds"] = answer.seconds;
  json["tokens_per_second"] = answer.tokens_per_second();
  return json;
}

Report arm_json(const TenantArmReport& arm) {
  Report json = {{"arm", arm.arm.name},
                 {"drafts", arm.arm.drafts},
                 {"sampled", arm.arm.sampled},
                 {"equal_lengths", arm.arm.equal_lengths},
                 {"requests", Report::array()}};
  for (const TenantRequest& request : arm.requests) {
    json["requests"].push_back(request_json(request));
  }
  json["tokens"] = arm.tokens();
  json["solo_seconds"] = arm.solo_seconds;
  json["together_seconds"] = arm.together_seconds;
  json["solo_tokens_per_second"] = arm.solo_tokens_per_second();
  json["together_tokens_per_second"] = arm.together_tokens_per_second();
  json["throughput_ratio"] = arm.throughput_ratio();
  json["longest_wait_seconds"] = arm.longest_wait_seconds();
  json["longest_gap_seconds"] = arm.longest_gap_seconds();
  if (arm.arm.equal_lengths) json["fairness"] = arm.fairness();
  json["alone_bytes"] = arm.alone_bytes;
  json["together_bytes"] = arm.together_bytes;
  json["bytes_ratio"] = arm.bytes_ratio();
  return json;
}

}  // namespace

void add_tenants_json(Report& report, std::span<const TenantArmReport> arms) {
  report["arms"] = Report::array();
  for (const TenantArmReport& arm : arms) report["arms"].push_back(arm_json(arm));
  report["outputs_equal"] = std::ranges::all_of(arms, &TenantArmReport::equal);
}

}  // namespace kakeya::eval
