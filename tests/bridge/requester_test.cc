// Who asks: what is sent, which answers count, and what is said of them.
#include "requester.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "bridge_fixture.h"

namespace kakeya::bridge {
namespace {

using testing::HasSubstr;

// With what a doctor's report has.
Json doctor_report() {
  return {{"version", "0"},
          {"system", "Linux"},
          {"cpus", 4},
          {"backends", {{"cpu", ""}}},
          {"model", Json::array()}};
}

class BridgeRequester : public BridgeEnds {
 protected:
  BridgeRequester() {
    std::filesystem::create_directory(folder_.path("asker"));
    EXPECT_TRUE(asker_.save(folder_.path("asker/key")));
    write_peers(Peers::line("machine", machine_.public_key()).value());
  }
  void write_peers(const std::string& lines) { folder_.write("asker/peers", lines); }
  Requester open() const { return Requester::open(folder_.path("asker")).value(); }
  Sent send(Requester& requester) {
    const auto id =
        requester.request(*mailbox_, {.where = where_, .preset = "doctor", .parameters = {}}, kNow);
    EXPECT_TRUE(id) << id.error().message();
    return requester.sent()->back();
  }
  // An answer of `key`, with what a test changes.
  void leave_answer(const Sent& sent, Outcome outcome, const SigningKey& key) {
    if (outcome.id.empty()) outcome.id = sent.id;
    if (outcome.job_sha256.empty()) outcome.job_sha256 = sent.sha256;
    const std::string text = seal(Kind::kResult, outcome_json(outcome), key).value();
    ASSERT_TRUE(mailbox_->put(Kind::kResult, sent.id, text));
  }
  std::string problem(Requester& requester, const Sent& sent) {
    const auto fetched = requester.fetch(*mailbox_, sent);
    return fetched ? std::string() : fetched.error().message();
  }
};
INSTANTIATE_TEST_SUITE_P(Over,
                         BridgeRequester,
                         testing::Values("folder", "git"),
                         [](const auto& place) { return std::string(place.param); });

TEST_P(BridgeRequester, GetsTheAnswerOfTheMachine) {
  presets_.push_back(script("doctor", "echo '" + doctor_report().dump() + "'"));
  Requester requester = open();
  const Sent sent = send(requester);
  EXPECT_FALSE(requester.fetch(*mailbox_, sent)->has_value());
  EXPECT_EQ(handle().ran, 1) << said_;
  const auto outcome = requester.fetch(*mailbox_, sent);
  ASSERT_TRUE(outcome) << outcome.error().message();
  ASSERT_TRUE(outcome->has_value());
  const Verdict verdict = judge(**outcome, sent.preset, sent.parameters);
  EXPECT_TRUE(verdict.passes);
  EXPECT_THAT(verdict.lines.front(), HasSubstr("for which the gate has no rules"));
  EXPECT_EQ(Json::parse(text_of(requester.report_path(sent.id))), doctor_report());
  EXPECT_TRUE(requester.sent()->front().fetched);
  EXPECT_TRUE(mailbox_->list(Kind::kResult)->empty());
  // The kept result is the one that the machine signed.
  const std::string kept = text_of(folder_.path("asker/results/" + sent.id + ".json"));
  EXPECT_TRUE(open_sealed(Kind::kResult, kept, peers_of(machine_, "machine")));
}

TEST_P(BridgeRequester, TakesNoAnswerButThatOfTheMachineToThisJob) {
  const SigningKey other = SigningKey::make().value();
  write_peers(Peers::line("machine", machine_.public_key()).value() + "\n" +
              Peers::line("other", other.public_key()).value() + "\n");
  Requester requester = open();
  const auto id = requester.request(
      *mailbox_, {.where = where_, .preset = "doctor", .server = "machine"}, kNow);
  ASSERT_TRUE(id);
  const Sent sent = requester.sent()->front();
  const Outcome good = {.preset = "doctor", .end = "exited"};
  leave_answer(sent, good, SigningKey::make().value());
  EXPECT_THAT(problem(requester, sent), HasSubstr("signed with an unknown key"));
  leave_answer(sent, good, other);
  EXPECT_THAT(problem(requester, sent),
              HasSubstr("expected an answer of machine, got one of other"));
  leave_answer(sent, {.id = "another-job", .preset = "doctor", .end = "exited"}, machine_);
  EXPECT_THAT(problem(requester, sent), HasSubstr("got one to another-job"));
  leave_answer(sent, {.job_sha256 = "00", .preset = "doctor", .end = "exited"}, machine_);
  EXPECT_THAT(problem(requester, sent), HasSubstr("expected an answer to " + sent.id));
  leave_answer(sent, {.preset = "niah", .end = "exited"}, machine_);
  EXPECT_THAT(problem(requester, sent),
              HasSubstr("expected an answer of the preset doctor, got one of niah"));
  EXPECT_FALSE(requester.sent()->front().fetched);
  leave_answer(sent, good, machine_);
  EXPECT_EQ(problem(requester, sent), "");
}

TEST_P(BridgeRequester, RefusesWhatNoMachineCouldRun) {
  Requester requester = open();
  const auto refusal = [&](const RequestOptions& options) {
    const auto id = requester.request(*mailbox_, options, kNow);
    return id ? std::string() : id.error().message();
  };
  EXPECT_THAT(refusal({.preset = "sh"}),
              HasSubstr("there is no preset 'sh'; expected one of doctor"));
  EXPECT_THAT(refusal({.preset = "niah", .parameters = {"length=1;ls"}}),
              HasSubstr("length: expected"));
  EXPECT_THAT(refusal({.preset = "doctor", .server = "x"}), HasSubstr("no machine 'x'"));
  EXPECT_THAT(refusal({.preset = "doctor", .lifetime = kMostLifetime + 1}), HasSubstr("a life of"));
  EXPECT_TRUE(mailbox_->list(Kind::kJob)->empty());
  EXPECT_TRUE(requester.sent()->empty());
}

TEST_P(BridgeRequester, ReadsNoAnswerThatTakesMuchMemory) {
  Requester requester = open();
  const Sent sent = send(requester);
  // A text of nobody; what its key signed; what its check printed, kept as text.
  ASSERT_TRUE(mailbox_->put(Kind::kResult, sent.id, std::string(std::size_t{8} << 20, '[')));
  EXPECT_THAT(problem(requester, sent), HasSubstr("expected JSON of at most 64 levels"));
  Outcome deep{.preset = "doctor", .end = "exited"};
  for (int level = 0; level < 70; ++level) deep.report = {{"a", deep.report}};
  leave_answer(sent, deep, machine_);
  EXPECT_THAT(problem(requester, sent), HasSubstr("expected JSON of at most 64 levels"));
  EXPECT_FALSE(parse_object("[" + std::string(kMostJsonValues, ',') + "]"));
  EXPECT_TRUE(parse_object(R"({"text": "[[,\"[,"})"));
}

constexpr const char* kResults = KAKEYA_SOURCE_DIR "/docs/results/";

Json kept_report(const std::string& name) {
  return Json::parse(text_of(kResults + name + ".json"));
}

// A report of the repository that keeps the gate's rules, as the command of a preset would have
// made it.
Json asked_report() {
  Json report = kept_report("drafter-parity");
  report["model"] = "/models/demo";
  report["command"] = {"kakeya",    "eval", "drafter-parity", "--json", "--model", "/models/demo",
                       "--backend", "cpu",  "--compute",      "f32",    "--limit", "3",
                       "--blocks",  "4",    "--block-tokens", "8"};
  return report;
}

Verdict judge_parity(const Json& report, const Json& parameters = Json::object()) {
  return judge({.preset = "drafter-parity", .end = "exited", .report = report}, "drafter-parity",
               parameters);
}

std::string lines_of(const Verdict& verdict) {
  std::string text;
  for (const std::string& line : verdict.lines) text += line + "\n";
  return text;
}

TEST(BridgeVerdict, PassesNoReportOfAnotherKind) {
  EXPECT_THAT(
      lines_of(judge_parity(doctor_report())),
      HasSubstr("expected a report of kakeya.eval.drafter-parity, got one without a schema"));
  EXPECT_FALSE(judge_parity(doctor_report()).passes);
  EXPECT_THAT(lines_of(judge_parity(kept_report("perplexity"))),
              HasSubstr("expected a report of kakeya.eval.drafter-parity, got kakeya.eval.perp"));
  EXPECT_FALSE(judge_parity(kept_report("perplexity")).passes);
  const auto judge_doctor = [](const Json& report) {
    return judge({.preset = "doctor", .end = "exited", .report = report}, "doctor", Json::object());
  };
  EXPECT_TRUE(judge_doctor(doctor_report()).passes);
  EXPECT_FALSE(judge_doctor(Json::object()).passes);
  EXPECT_FALSE(judge_doctor(asked_report()).passes);
}

TEST(BridgeVerdict, PassesNoReportOfOtherParametersOrBackends) {
  EXPECT_TRUE(judge_parity(asked_report()).passes) << lines_of(judge_parity(asked_report()));
  const Json others[] = {{{"limit", 4}},
                         {{"blocks", 5}},
                         {{"block-tokens", 9}},
                         {{"backend", "ref"}},
                         {{"compute", "fast"}}};
  for (const Json& parameters : others) {
    const Verdict verdict = judge_parity(asked_report(), parameters);
    EXPECT_FALSE(verdict.passes) << parameters;
    EXPECT_THAT(lines_of(verdict), HasSubstr("expected a report of what was asked for"));
  }
  // The command alone is no evidence.
  Json report = asked_report();
  report["backend"] = "mlx/gpu";
  EXPECT_THAT(lines_of(judge_parity(report)),
              HasSubstr("expected a report of the backend cpu, got one of mlx/gpu"));
  report = asked_report();
  report["command"].push_back("--resume");
  EXPECT_FALSE(judge_parity(report).passes);
  report.erase("command");
  EXPECT_FALSE(judge_parity(report).passes);
  EXPECT_FALSE(judge_parity(asked_report(), {{"limit", 1000}}).passes);  // out of its bounds
}

TEST(BridgeVerdict, AsksTheGateAboutEveryReport) {
  Outcome outcome{.preset = "mac-report", .end = "exited"};
  const auto judged = [&outcome] { return judge(outcome, "mac-report", Json::object()); };
  Json decode = kept_report("decode-slice");
  outcome.report = {{"summary", Json::object()}, {"reports", {{"decode-cpu", decode}}}};
  EXPECT_TRUE(judged().passes) << lines_of(judged());
  EXPECT_THAT(judged().lines.front(), HasSubstr("decode-cpu: ok by the gate"));
  outcome.report["reports"]["decode-cpu"].erase("commit");
  EXPECT_FALSE(judged().passes);
  EXPECT_THAT(judged().lines.front(), HasSubstr("decode-cpu: FAIL fields"));
  for (const char* name : {"niah", "spec"}) {  // never of this preset; not of its command
    outcome.report["reports"] = {{"decode-cpu", decode}, {"other", kept_report(name)}};
    EXPECT_FALSE(judged().passes) << name;
  }
  outcome.report["reports"] = Json::object();
  EXPECT_FALSE(judged().passes);
  outcome.report = decode;
  EXPECT_FALSE(judged().passes);
}

TEST(BridgeVerdict, PassesNoCheckThatDidNotEndWell) {
  const auto passes = [](const Outcome& outcome) {
    return judge(outcome, "doctor", Json::object()).passes;
  };
  const Json report = doctor_report();
  for (const char* end : {"timed out", "stopped", "signal", "too much output", "refused", "x"}) {
    EXPECT_FALSE(passes({.preset = "doctor", .end = end, .report = report})) << end;
  }
  EXPECT_FALSE(passes({.preset = "doctor", .end = "exited"}));  // without a report
  EXPECT_FALSE(passes({.preset = "doctor", .end = "exited", .code = 1, .report = report}));
  EXPECT_TRUE(passes({.preset = "doctor", .end = "exited", .report = report}));
}

// A machine signs what it likes, and a terminal obeys it.
TEST(BridgeVerdict, PrintsNoControlCharactersOfAnAnswer) {
  const std::string escape = "\x1b]0;title\x07\x1b[31m\xc2\x9b";
  const Json parameters = Json::object();
  for (const char* preset : {"doctor", "drafter-parity", "mac-report"}) {
    Json report = asked_report();
    for (const char* field : {"schema", "backend", "commit", "model"}) {
      for (const bool in_folder : {false, true}) {
        Json changed = report;
        changed[field] = escape;
        changed[escape] = escape;
        if (in_folder) changed = {{"summary", escape}, {"reports", {{escape, changed}}}};
        for (const std::string& end : {std::string("exited"), escape, std::string("refused")}) {
          const Outcome outcome{.preset = escape,
                                .end = end,
                                .refusal = escape,
                                .code = 1,
                                .report = changed,
                                .messages = escape};
          const std::string lines = lines_of(judge(outcome, preset, parameters));
          EXPECT_TRUE(std::ranges::all_of(lines, [](char c) {
            return c == '\n' || (c >= ' ' && c <= '~');
          })) << lines;
        }
      }
    }
  }
}

TEST(BridgeOutcome, HasWholeNumbersWhereItSaysSo) {
  Json json = outcome_json({.id = "job-1", .preset = "doctor", .end = "exited"});
  EXPECT_TRUE(parse_outcome(json));
  for (const char* name : {"code", "started"}) {
    Json other = json;
    other[name] = 1e300;
    EXPECT_FALSE(parse_outcome(other)) << name;
  }
}

}  // namespace
}  // namespace kakeya::bridge
