#include "eval/report/made_reports.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "eval/drafter/drafter_parity_report.h"
#include "eval/longrun/longrun_report.h"
#include "eval/multitenant/multitenant_eval.h"
#include "eval/niah/niah_eval.h"
#include "eval/report/kv_modes.h"
#include "eval/tasks/task_eval.h"

namespace kakeya::eval {
namespace {

Report with_provenance(const Report& of, const std::string& schema) {
  Report report;
  for (const char* name :
       {"schema", "version", "commit", "dirty", "command", "machine", "conditions", "model",
        "weights", "drafter_weights", "backend", "threads", "compute"}) {
    report[name] = of.at(name);
  }
  report["schema"] = schema;
  return report;
}

}  // namespace

Report kept_report(const std::string& name) {
  return read_report(KAKEYA_SOURCE_DIR "/docs/results/" + name + ".json").value();
}

Report made_longrun_report(const Report& provenance) {
  Report report = with_provenance(provenance, "kakeya.longrun/1");
  report["command"] = {"kakeya", "eval", "longrun", "--limit", "2", "--json"};
  report["conditions"]["seconds"] = 3601.5;
  LongRunReport run{.options = {.minutes = 60.0,
                                .buckets = 6,
                                .context = 8192,
                                .window = 1024,
                                .sink = 4,
                                .evicted_full = "drop",
                                .evicted_sliding = "keep",
                                .set = "mt_bench",
                                .prompts = 2,
                                .draft = "auto",
                                .draft_length = "auto",
                                .temperature = 1.0},
                    .probe_gb_per_s = {.before = 40.0, .after = 41.0},
                    .complete = true,
                    .seconds = 3600.25};
  for (int i = 0; i < 6; ++i) {
    run.buckets.push_back({.begin_seconds = 600.0 * i,
                           .end_seconds = i == 5 ? run.seconds : 600.0 * (i + 1),
                           .conversations = 100 + i,
                           .rounds = 500000,
                           .tokens = 900000 + 100 * i,
                           .drafted = 800000,
                           .accepted = 400000 + i,
                           .p50_ms = 1.0 + 0.01 * i,
                           .p95_ms = 1.5,
                           .p99_ms = 2.0 + 0.1 * i,
                           .ledger_bytes = 25000000,
                           .resident_bytes = 60000000 + 4096U * static_cast<unsigned>(i)});
  }
  run.prompts = {{.prompt = "a", .answers = 308, .equal = 308, .sha256 = std::string(64, '1')},
                 {.prompt = "b", .answers = 307, .equal = 307, .sha256 = std::string(64, '2')}};
  write_fields(report, run);
  return report;
}

Report made_multitenant_report(const Report& provenance) {
  Report report = with_provenance(provenance, "kakeya.multitenant/1");
  report["command"] = {"kakeya", "eval", "multitenant", "--sessions", "3", "-n32", "--json"};
  TenantsReport tenants{.options = {.sessions = 3,
                                    .pairs = 5,
                                    .max_tokens = 32,
                                    .context = 200,
                                    .draft = "auto",
                                    .draft_length = "auto",
                                    .temperature = 1.0,
                                    .seed = 1},
                        .probe_gb_per_s = {.before = 40.0, .after = 41.0}};
  const TenantOptions options{.hash = [](std::span<const TokenId> ids) {
    return std::string(64, static_cast<char>('0' + ids.size() % 10));
  }};
  for (const TenantArm& arm : tenant_arms(true)) {
    TenantArmReport& made = tenants.arms.emplace_back();
    made.arm = arm;
    for (int i = 0; i < 3; ++i) {
      TenantRequest& request = made.requests.emplace_back();
      request.prompt = std::to_string(i);
      request.prompt_tokens = arm.equal_lengths ? 10 : 10 + 50 * i;
      TenantAnswer answer{.first_token_seconds = 0.01 * (i + 1),
                          .longest_gap_seconds = 0.002 * (3 - i),
                          .seconds = 0.1 + 0.01 * i};
      answer.ids.resize(arm.equal_lengths ? 32 : 12 + 7 * static_cast<std::size_t>(i));
      if (arm.drafts) answer.drafted = 20 + i;
      if (arm.drafts) answer.accepted = 10;
      compare_tenant(request, answer, answer, options);
    }
    made.solo_seconds = {0.30, 0.31, 0.29, 0.30, 0.32};
    made.together_seconds = {0.13, 0.14, 0.13, 0.15, 0.13};
    made.alone_bytes = 1000000;
    made.together_bytes = 3000000;
  }
  write_fields(report, tenants);
  return report;
}

namespace {

// A reply of `index` + 10 tokens.
TaskReply made_task_reply(std::int64_t index) {
  TaskReply reply{.id = std::to_string(index),
                  .prompt_sha256 = fmt::format("a{:063x}", index),
                  .sha256 = fmt::format("b{:063x}", index),
                  .tokens = 10 + index,
                  .decode_seconds = 0.02 + 0.001 * static_cast<double>(index),
                  .passes = TaskPasses{.prompt_tokens = 50 + index,
                                       .rounds = 5,
                                       .drafted = 20 + index,
                                       .accepted = 5 + index,
                                       .prefill_seconds = 0.01}};
  reply.plain_sha256 = reply.sha256;
  return reply;
}

Report made_task_report(const Report& provenance,
                        const std::string& task,
                        const std::vector<TaskReply>& replies) {
  Report report = with_provenance(provenance, "kakeya.eval.task/1");
  report["command"] = {"kakeya", "eval",   task,        "--max-tokens=64", "--limit",
                       "24",     "--data", "own.jsonl", "--compare-plain"};
  report["draft"] = "auto";
  report["options"] = {{"task", task}, {"prompt", "chat"},       {"max_tokens", 64},
                       {"limit", 24},  {"draft_length", "auto"}, {"compare_plain", true}};
  report["problems_sha256"] = std::string(64, 'b');
  for (const TaskReply& reply : replies) report["rows"].push_back(task_reply_json(reply));
  report["summary"] = task_summary_json(task_summary(replies));
  return report;
}

}  // namespace

Report made_humaneval_report(const Report& provenance) {
  std::vector<TaskReply> replies;
  for (std::int64_t i = 0; i < 24; ++i) {
    replies.push_back(made_task_reply(i));
    replies.back().judgement.verdict = static_cast<TaskVerdict>(i % 5);
    if (i % 5 == 1) replies.back().judgement.detail = "AssertionError";
  }
  Report report = made_task_report(provenance, "humaneval", replies);
  report["python"] = {{"version", "3.11.2"},
                      {"seconds", 3.0},
                      {"network_blocked", true},
                      {"files_blocked", true},
                      {"unconfined", false}};
  return report;
}

Report made_gsm8k_report(const Report& provenance) {
  std::vector<TaskReply> replies;
  for (std::int64_t i = 0; i < 24; ++i) {
    replies.push_back(made_task_reply(i));
    const TaskProblem problem = {.answer = std::to_string(i)};
    const std::string reply = i % 3 == 0 ? "none" : "#### " + std::to_string(i / 2 * 2);
    replies.back().judgement = judge_number(problem, reply);
    replies.back().expected = problem.answer;
  }
  return made_task_report(provenance, "gsm8k", replies);
}

Report made_served_report(const Report& provenance) {
  const Report of_engine = made_gsm8k_report(provenance);
  Report report = with_provenance(provenance, "kakeya.eval.served-task/1");
  report["command"] = {"kakeya",     "eval",  "gsm8k",
                       "-n",         "64",    "--limit",
                       "24",         "--url", "http://127.0.0.1:8080",
                       "--parallel", "4",     "--data",
                       "own.jsonl"};
  for (const char* name : {"weights", "drafter_weights", "backend", "threads", "compute"}) {
    report.erase(name);
  }
  report["server"] = "http://127.0.0.1:8080";
  report["options"] = {{"task", "gsm8k"}, {"max_tokens", 64}, {"limit", 24}, {"parallel", 4}};
  report["problems_sha256"] = of_engine["problems_sha256"];
  std::vector<TaskReply> replies;
  for (const Report& row : of_engine["rows"]) {
    replies.push_back(parse_task_reply(row).value());
    replies.back().passes.reset();
    replies.back().plain_sha256.reset();
    report["rows"].push_back(task_reply_json(replies.back()));
  }
  report["summary"] = task_summary_json(task_summary(replies));
  return report;
}

Report made_served_niah_report(const Report& niah) {
  Report report = niah;
  report["schema"] = "kakeya.eval.served-niah/1";
  report["command"] = {"kakeya",     "eval", "niah", "--url", "http://127.0.0.1:8080",
                       "--parallel", "4"};
  for (const char* name : {"weights", "drafter_weights", "backend", "threads", "compute"}) {
    report.erase(name);
  }
  report["server"] = "http://127.0.0.1:8080";
  report["options"].erase("chunk");
  report["options"]["parallel"] = 4;
  report["modes"] = Report::array({Report({{"mode", kServedMode}})});
  for (Report& sample : report["samples"]) {
    const Report reply = sample["replies"][0];
    sample["replies"] = Report::array({reply});
    sample["replies"][0]["mode"] = kServedMode;
  }
  Report claims = Report::array();
  for (const Report& claim : niah["claims"]) {
    if (claim["mode"] != niah["modes"][0]["mode"]) continue;
    claims.push_back(claim);
    claims.back()["mode"] = kServedMode;
  }
  report["claims"] = claims;
  return report;
}

Report made_parity_report(const Report& provenance) {
  Report report = with_provenance(provenance, "kakeya.eval.drafter-parity/1");
  report["command"] = {"kakeya",         "eval", "drafter-parity", "--blocks", "2",
                       "--block-tokens", "5",    "--compute",      "fast"};
  ParityReport parity{.reference = {.drafter_weights = report["drafter_weights"].get<std::string>(),
                                    .backend = "ref",
                                    .compute = "f32",
                                    .draft = "auto"},
                      .draft = "auto",
                      .options = {.set = "humaneval", .limit = 3, .blocks = 2, .block_tokens = 5}};
  for (int i = 0; i < 6; ++i) {
    parity.rows.push_back({.prompt = std::to_string(i / 2),
                           .context = 40 + 5 * (i % 2),
                           .reference = {i, 2, 3, 4},
                           .drafted = {3, 2, 3, 4},
                           .difference = 0.1 * i + 0.05});
  }
  write_fields(report, parity);
  return report;
}

Report made_session_report(const Report& report) {
  if (report.contains("session")) return report;
  Report made = report;
  const std::string schema = report["schema"].get<std::string>();
  const std::size_t version = schema.rfind('/') + 1;
  made["schema"] =
      schema.substr(0, version) + std::to_string(std::stoi(schema.substr(version)) + 1);
  const bool drafts =
      !schema.starts_with("kakeya.eval.perplexity") && !schema.starts_with("kakeya.eval.kl");
  const bool is_long = schema.starts_with("kakeya.longrun");
  made["session"] = {{"context", 0},
                     {"chunk", 512},
                     {"kv_full", "auto"},
                     {"kv_sliding", "auto"},
                     {"kv_drafter", "auto"},
                     {"window", is_long ? 1024 : 0},
                     {"sink", 4},
                     {"evicted_full", is_long ? "drop" : "keep"},
                     {"evicted_sliding", "keep"},
                     {"kv_codes", "auto"},
                     {"projection", "auto"},
                     {"draft", drafts ? "auto" : "none"},
                     {"allow_inexact", false},
                     {"backend", "cpu"},
                     {"compute", report["compute"]},
                     {"threads", std::ranges::count(report["command"], "-t") > 0 ? 1 : 0}};
  std::set<std::string> names;
  for (const Report& mode : report.value("modes", Report::array())) {
    const auto known =
        std::ranges::find(former_kv_modes(), mode["mode"].get<std::string>(), &KvMode::name);
    if (!known->projection.empty()) names.insert(known->projection);
  }
  made["projections"] = Report::array();
  for (const std::string& name : names) {
    made["projections"].push_back({{"name", name}, {"fingerprint", std::string(16, 'e')}});
  }
  return made;
}

void expect_rejected(const Report& report, const std::vector<DoctoredReport>& doctored) {
  for (const DoctoredReport& each : doctored) {
    Report changed = report;
    each.doctor(changed);
    EXPECT_THAT(check_report(changed),
                testing::Contains(testing::Field(&GateFinding::rule, each.rule)))
        << each.rule;
  }
}

}  // namespace kakeya::eval
