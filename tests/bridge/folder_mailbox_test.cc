// Things that a folder may hold that somebody else writes into.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bridge_fixture.h"
#include "mailbox.h"

namespace kakeya::bridge {
namespace {

using testing::HasSubstr;

class BridgeFolder : public BridgeEnds {
 protected:
  std::string jobs(const std::string& name) const { return where_ + "/jobs/" + name; }
};
INSTANTIATE_TEST_SUITE_P(Over, BridgeFolder, testing::Values("folder"));

TEST_P(BridgeFolder, FollowsNoLinkToAJob) {
  folder_.write("outside.json", sealed(job()));
  std::filesystem::create_symlink(folder_.path("outside.json"), jobs("job-1.json"));
  expect_refusal("job-1.json: expected a regular file, got a symbolic link");
}

TEST_P(BridgeFolder, FollowsNoLinkToItsFolders) {
  std::filesystem::create_directory(folder_.path("elsewhere"));
  std::filesystem::remove(where_ + "/results");
  std::filesystem::create_symlink(folder_.path("elsewhere"), where_ + "/results");
  const auto opened = open_mailbox(where_);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message(), HasSubstr("results: expected a folder, no link"));
}

TEST_P(BridgeFolder, ReplacesALinkAtTheAnswersPlace) {
  const std::string target = folder_.write("precious", "mine");
  std::filesystem::create_symlink(target, where_ + "/results/job-1.json");
  leave(sealed(job("count")));
  EXPECT_EQ(handle().ran, 1);
  EXPECT_EQ(text_of(target), "mine");
  EXPECT_TRUE(answer());
}

TEST_P(BridgeFolder, DoesNotWaitForAFifo) {
  ASSERT_EQ(::mkfifo(jobs("job-1.json").c_str(), 0600), 0);
  expect_refusal("job-1.json: expected a regular file");
}

TEST_P(BridgeFolder, ReadsNothingOfAFileThatIsTooLong) {
  // A terabyte that takes no disk: reading it would never end.
  std::ofstream(jobs("job-1.json")) << sealed(job());
  std::filesystem::resize_file(jobs("job-1.json"), std::uintmax_t{1} << 40);
  expect_refusal("expected at most 16384 bytes, got 1099511627776");
}

TEST_P(BridgeFolder, RefusesNamesThatAreNoIds) {
  for (const char* name : {"..json", "a b.json", "$(id).json", "A.json", "x\n.json"}) {
    restart();
    std::ofstream(jobs(name)) << sealed(job());
    // Hidden ones are nobody's business.
    if (name[0] == '.') {
      EXPECT_EQ(handle().refused, 0) << name;
    } else {
      expect_refusal("expected the name of a job, an id");
    }
    std::filesystem::remove(jobs(name));
  }
}

TEST_P(BridgeFolder, TakesNoAllowlistFromTheFolder) {
  const SigningKey stranger = SigningKey::make().value();
  const std::string line = Peers::line("stranger", stranger.public_key()).value() + "\n";
  for (const char* name : {"/peers", "/jobs/peers", "/presets.json"}) {
    std::ofstream(where_ + name) << line;
  }
  leave(sealed(job(), stranger));
  expect_refusal("signed with an unknown key");
}

// Whoever can write there takes back what was done, and puts other answers into sent ones' places.
TEST_P(BridgeFolder, KeepsNothingInAFolderThatOthersMayWrite) {
  std::filesystem::create_directory(folder_.path("home"));
  for (const char* inside : {"home", "home/done", "home/answers"}) {
    const std::filesystem::path path = folder_.path(inside);
    std::filesystem::create_directory(path);
    std::filesystem::permissions(path, std::filesystem::perms(0775));
    ServiceOptions options;
    options.home = folder_.path("home");
    const auto made =
        Service::create(SigningKey::make().value(), peers_of(asker_, "asker"), std::move(options));
    ASSERT_FALSE(made) << inside;
    EXPECT_EQ(made.error().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(made.error().message(), HasSubstr("got mode 0775: chmod go-w"));
    std::filesystem::permissions(path, std::filesystem::perms(0755));
  }
}

TEST_P(BridgeFolder, LeavesFilesOfOthersAlone) {
  std::ofstream(jobs("notes.txt")) << "x";
  std::ofstream(jobs("job-1.json")) << "junk";
  EXPECT_EQ(handle().refused, 1);
  EXPECT_EQ(text_of(jobs("notes.txt")), "x");
  EXPECT_EQ(text_of(jobs("job-1.json")), "junk");
}

}  // namespace
}  // namespace kakeya::bridge
