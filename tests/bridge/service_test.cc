// The work of the machine that runs checks on jobs, good and bad, over both kinds of place.
#include "service.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "bridge_fixture.h"

namespace kakeya::bridge {
namespace {

using testing::HasSubstr;

class BridgeService : public BridgeEnds {};
INSTANTIATE_TEST_SUITE_P(Over,
                         BridgeService,
                         testing::Values("folder", "git"),
                         [](const auto& place) { return std::string(place.param); });

// Checks that are the same wherever jobs lie.
class BridgeChecks : public BridgeEnds {};
INSTANTIATE_TEST_SUITE_P(Over, BridgeChecks, testing::Values("folder"));

TEST_P(BridgeService, RunsAJobAndAnswersIt) {
  Job asked = job("count");
  asked.parameters = {{"count", 7}};
  leave(sealed(asked));
  const Handled handled = handle();
  EXPECT_EQ(handled.ran, 1) << said_;
  EXPECT_EQ(handled.refused, 0) << said_;
  const auto outcome = answer();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->end, "exited");
  EXPECT_EQ(outcome->code, 0);
  EXPECT_EQ(outcome->preset, "count");
  EXPECT_EQ(outcome->started, kNow);
  EXPECT_EQ(json_line(outcome->report), R"({"count":7,"model":"/models/demo"})");
  EXPECT_EQ(outcome->job_sha256, sha256_hex(json_line(job_json(asked))));
  EXPECT_TRUE(mailbox_->list(Kind::kJob)->empty());
}

TEST_P(BridgeService, RefusesAReplayAlsoAfterARestart) {
  const std::string text = sealed(job("count"));
  leave(text);
  EXPECT_EQ(handle().ran, 1);
  const std::string first = mailbox_->read(Kind::kResult, "job-1").value();
  for (const bool restarted : {false, true}) {
    if (restarted) restart();
    leave(text);
    const Handled handled = handle();
    EXPECT_EQ(handled.ran, 0);
    EXPECT_EQ(handled.refused, 1);
    EXPECT_THAT(said_, HasSubstr("refused job-1: it was done before"));
  }
  EXPECT_EQ(mailbox_->read(Kind::kResult, "job-1").value(), first);
}

TEST_P(BridgeService, SaysOnceWhatItRefuses) {
  leave("{}");
  EXPECT_EQ(handle().refused, 1);
  EXPECT_EQ(handle().refused, 0);
  EXPECT_EQ(said_, "");
  leave("{ }");
  EXPECT_EQ(handle().refused, 1);
}

TEST_P(BridgeService, RefusesAnExpiredJobAndSaysSoToWhoAsked) {
  leave(sealed(job()));
  now_ = kNow + 60;
  expect_refusal("it expired 0 s ago");
  const auto outcome = answer();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->end, "refused");
  EXPECT_THAT(outcome->refusal, HasSubstr("expired"));
  EXPECT_FALSE(judge(*outcome, outcome->preset, Json::object()).passes);
}

TEST_P(BridgeChecks, RefusesAJobOfTheFutureAndOneThatLivesTooLong) {
  Job early = job();
  early.issued = kNow + kMostClockSkew + 1;
  early.expires = early.issued + 60;
  leave(sealed(early));
  expect_refusal("in the future");
  Job old = job();
  old.id = "job-2";
  old.expires = kNow + kMostLifetime + 1;
  leave(sealed(old), "job-2");
  expect_refusal("expected a life of at most");
}

TEST_P(BridgeChecks, RefusesAJobThatExpiresBeforeItIsIssued) {
  Job odd = job();
  odd.issued = kNow + kMostClockSkew;
  odd.expires = kNow + 60;
  leave(sealed(odd));
  expect_refusal("expected to expire after it was issued, got 240 s before that");
}

TEST_P(BridgeService, RefusesWhatIsNotSigned) {
  leave(json_line({{"kakeya_bridge", 1}, {"payload", json_line(job_json(job()))}}));
  expect_refusal("it is not signed");
  EXPECT_FALSE(answer());
}

TEST_P(BridgeService, RefusesAnUnknownKey) {
  leave(sealed(job(), SigningKey::make().value()));
  expect_refusal("signed with an unknown key");
  EXPECT_FALSE(answer());
}

TEST_P(BridgeService, RefusesAChangedPayload) {
  Json text = Json::parse(sealed(job()));
  std::string payload = text["payload"];
  payload.replace(payload.find("mark"), 4, "marj");
  text["payload"] = payload;
  leave(json_line(text));
  expect_refusal("the signature is not that of asker for this job");
}

TEST_P(BridgeService, TakesNoAnswerForAJob) {
  leave(seal(Kind::kResult, job_json(job()), asker_).value());
  expect_refusal("the signature is not that of asker for this job");
}

TEST_P(BridgeService, RefusesAnOversizedJob) {
  leave(std::string(kMostJobBytes + 1, ' '));
  expect_refusal("expected at most 16384 bytes, got 16385");
}

TEST_P(BridgeService, RefusesAJobUnderAnotherName) {
  leave(sealed(job()), "job-2");
  expect_refusal("expected the id that it lies under, got job-1");
}

TEST_P(BridgeChecks, RefusesPathsInAnId) {
  for (const char* id : {"../../etc/x", "a/b", ".hidden", "a b;c", "-option"}) {
    Job bad = job();
    bad.id = id;
    restart();
    leave(sealed(bad));
    expect_refusal("id: expected 4 to 64 of a-z");
  }
}

TEST_P(BridgeChecks, RefusesShellCharactersAndPathsInParameters) {
  const Json bad[] = {{{"count", "1; touch ran"}},
                      {{"count", "$(touch ran)"}},
                      {{"count", 10}},
                      {{"count", 1.5}},
                      {{"model", "../secret"}},
                      {{"model", "/etc/passwd"}},
                      {{"model", "`id`"}},
                      {{"model", "--json"}},
                      {{"depth", 1}}};
  for (std::size_t i = 0; i < std::size(bad); ++i) {
    Job asked = job();
    asked.id = "job-" + std::to_string(i + 10);
    asked.parameters = bad[i];
    leave(sealed(asked), asked.id);
    expect_refusal(i < 4   ? "count: expected a whole number of 0 to 9"
                   : i < 8 ? "model: expected a name"
                           : "mark has no parameter 'depth'");
    ASSERT_TRUE(answer(asked.id));
    EXPECT_EQ(answer(asked.id)->end, "refused");
  }
}

TEST_P(BridgeChecks, RefusesModelsAndPresetsThatTheMachineDoesNotHave) {
  Job asked = job();
  asked.parameters = {{"model", "gemma"}};
  leave(sealed(asked));
  expect_refusal("this machine has no model called gemma");
  Job other = job("sh");
  other.id = "job-2";
  leave(sealed(other), "job-2");
  expect_refusal("this machine runs no preset 'sh'");
}

TEST_P(BridgeService, LeavesJobsOfOtherMachinesAlone) {
  Job other = job();
  other.server = SigningKey::make()->public_key();
  leave(sealed(other));
  const Handled handled = handle();
  EXPECT_EQ(handled.ran + handled.refused, 0) << said_;
  EXPECT_EQ(mailbox_->list(Kind::kJob)->size(), 1U);
}

TEST_P(BridgeChecks, EndsACheckOverItsTimeWithAllItStarted) {
  // A second process, which would write after the first one is gone.
  presets_.push_back(
      script("slow", "(sleep 2; echo late > " + folder_.path("ran") + ") & sleep 60", 0.3));
  leave(sealed(job("slow")));
  const Stopwatch clock;
  EXPECT_EQ(handle().ran, 1);
  EXPECT_LT(clock.seconds(), 15.0);
  const auto outcome = answer();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->end, "timed out");
  EXPECT_GE(outcome->seconds, 0.3);
  const Verdict verdict = judge(*outcome, outcome->preset, Json::object());
  EXPECT_FALSE(verdict.passes);
  EXPECT_THAT(verdict.lines.front(), HasSubstr("its limit"));
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("ran")));
}

TEST_P(BridgeChecks, EndsACheckThatPrintsTooMuch) {
  presets_.push_back(script("loud", "while :; do echo 0123456789; done"));
  leave(sealed(job("loud")));
  EXPECT_EQ(handle().ran, 1);
  EXPECT_EQ(answer()->end, "too much output");
  EXPECT_FALSE(judge(*answer(), answer()->preset, Json::object()).passes);
}

TEST_P(BridgeChecks, SaysThatACheckFailed) {
  presets_.push_back(script("bad", "echo {}; echo no such model >&2; exit 2"));
  leave(sealed(job("bad")));
  EXPECT_EQ(handle().ran, 1);
  const auto outcome = answer();
  EXPECT_EQ(outcome->code, 2);
  EXPECT_EQ(outcome->messages, "no such model\n");
  EXPECT_THAT(judge(*outcome, outcome->preset, Json::object()).lines.front(),
              HasSubstr("exit code 2: no such model"));
}

TEST_P(BridgeService, BringsAnAnswerThatCouldNotBeBroughtBefore) {
  leave(sealed(job("count")));
  EXPECT_EQ(handle().ran, 1);
  // As if the place had been gone when the check ended.
  const std::string kept = mailbox_->read(Kind::kResult, "job-1").value();
  ASSERT_TRUE(mailbox_->remove(Kind::kResult, "job-1"));
  ASSERT_TRUE(write_small_file(AT_FDCWD, folder_.path("home/answers/job-1"), kept));
  restart();
  EXPECT_EQ(handle().ran, 0);
  EXPECT_EQ(mailbox_->read(Kind::kResult, "job-1").value_or(""), kept);
}

}  // namespace
}  // namespace kakeya::bridge
