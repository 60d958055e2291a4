// Arms of shared runs as reports have them.
#include <algorithm>
#include <utility>

#include "eval/multitenant/multitenant_eval.h"
#include "eval/report/field_reader.h"

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

bool take_stop_reason(const std::string& name, StopReason& to) {
  for (const StopReason reason :
       {StopReason::kStopId, StopReason::kMaxTokens, StopReason::kContext, StopReason::kCallback}) {
    if (stop_reason_name(reason) != name) continue;
    to = reason;
    return true;
  }
  return false;
}

Result<TenantRequest> parse_tenant_request(const Report& json) {
  TenantRequest request;
  TenantAnswer& answer = request.together;
  FieldReader fields(json);
  fields.take("prompt", request.prompt)
      .take("prompt_tokens", request.prompt_tokens)
      .take_if_there("error", request.error)
      .take_if_there("sha256", request.sha256);
  std::string stop_reason;
  std::int64_t differs_at = -1;
  if (!request.sha256.empty()) {
    fields.take("solo_sha256", request.solo_sha256)
        .take_if_there("differs_at", differs_at)
        .take("stop_reason", stop_reason)
        .take("drafted", answer.drafted)
        .take("accepted", answer.accepted)
        .take("queue_seconds", answer.queue_seconds)
        .take("first_token_seconds", answer.first_token_seconds)
        .take("longest_gap_seconds", answer.longest_gap_seconds)
        .take("seconds", answer.seconds)
        .take("ids", answer.ids);
  }
  KAKEYA_TRY(fields.status("a request"));
  if (differs_at >= 0) request.differs_at = differs_at;
  if (request.sha256.empty() || take_stop_reason(stop_reason, answer.stop_reason)) return request;
  return data_loss("expected a reason to stop, got {}", stop_reason);
}

}  // namespace

Report tenant_arm_json(const TenantArmReport& report) {
  Report json = arm_json(report);
  for (std::size_t i = 0; i < report.requests.size(); ++i) {
    json["requests"][i]["ids"] = report.requests[i].together.ids;
  }
  return json;
}

Result<TenantArmReport> parse_tenant_arm(const Report& json, const TenantArm& arm) {
  TenantArmReport report{.arm = arm};
  std::vector<Report> requests;
  KAKEYA_TRY(FieldReader(json)
                 .take("requests", requests)
                 .take("solo_seconds", report.solo_seconds)
                 .take("together_seconds", report.together_seconds)
                 .take("alone_bytes", report.alone_bytes)
                 .take("together_bytes", report.together_bytes)
                 .status("what an arm gave"));
  for (const Report& each : requests) {
    KAKEYA_ASSIGN_OR_RETURN(TenantRequest request, parse_tenant_request(each));
    report.requests.push_back(std::move(request));
  }
  return report;
}

void add_tenants_json(Report& report, std::span<const TenantArmReport> arms) {
  report["arms"] = Report::array();
  for (const TenantArmReport& arm : arms) report["arms"].push_back(arm_json(arm));
  report["outputs_equal"] = std::ranges::all_of(arms, &TenantArmReport::equal);
}

}  // namespace kakeya::eval
