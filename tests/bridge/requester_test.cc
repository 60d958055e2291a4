// Who asks: what is sent, which answers count, and what is said of them.
#include "requester.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bridge_fixture.h"

namespace kakeya::bridge {
namespace {

using testing::HasSubstr;

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
  presets_.push_back(script("doctor", "echo '{\"cpus\": 4}'"));
  Requester requester = open();
  const Sent sent = send(requester);
  EXPECT_FALSE(requester.fetch(*mailbox_, sent)->has_value());
  EXPECT_EQ(handle().ran, 1) << said_;
  const auto outcome = requester.fetch(*mailbox_, sent);
  ASSERT_TRUE(outcome) << outcome.error().message();
  ASSERT_TRUE(outcome->has_value());
  const Verdict verdict = judge(**outcome);
  EXPECT_TRUE(verdict.passes);
  EXPECT_THAT(verdict.lines.front(), HasSubstr("for which the gate has no rules"));
  EXPECT_EQ(text_of(requester.report_path(sent.id)), "{\n \"cpus\": 4\n}\n");
  EXPECT_TRUE(requester.sent()->front().fetched);
  EXPECT_TRUE(mailbox_->list(Kind::kResult)->empty());
  // What is kept is what the machine signed.
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

// Of the repository's own reports: one that keeps the gate's rules.
Json kept_report() {
  return Json::parse(text_of(KAKEYA_SOURCE_DIR "/docs/results/decode-slice.json"));
}

TEST(BridgeVerdict, AsksTheGateAboutEveryReport) {
  Outcome outcome{.preset = "mac-report", .end = "exited"};
  outcome.report = {{"summary", Json::object()}, {"reports", {{"decode-cpu", kept_report()}}}};
  EXPECT_TRUE(judge(outcome).passes) << judge(outcome).lines.front();
  EXPECT_THAT(judge(outcome).lines.front(), HasSubstr("decode-cpu: ok by the gate"));
  outcome.report["reports"]["decode-cpu"].erase("commit");
  EXPECT_FALSE(judge(outcome).passes);
  EXPECT_THAT(judge(outcome).lines.front(), HasSubstr("decode-cpu: FAIL fields"));
  outcome.report = kept_report();
  EXPECT_TRUE(judge(outcome).passes);
  outcome.report["schema"] = "kakeya.unknown/1";
  EXPECT_FALSE(judge(outcome).passes);
}

TEST(BridgeVerdict, PassesNoCheckThatDidNotEndWell) {
  for (const char* end : {"timed out", "stopped", "signal", "too much output", "refused", "x"}) {
    const Outcome outcome{.preset = "doctor", .end = end, .report = Json::object()};
    EXPECT_FALSE(judge(outcome).passes) << end;
  }
  EXPECT_FALSE(judge({.preset = "doctor", .end = "exited"}).passes);  // without a report
  EXPECT_FALSE(
      judge({.preset = "doctor", .end = "exited", .code = 1, .report = Json::object()}).passes);
  EXPECT_TRUE(judge({.preset = "doctor", .end = "exited", .report = Json::object()}).passes);
}

}  // namespace
}  // namespace kakeya::bridge
