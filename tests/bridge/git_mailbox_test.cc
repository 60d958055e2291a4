// Things that a repository may hold that somebody else pushes into, or even owns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "bridge_fixture.h"
#include "mailbox.h"

namespace kakeya::bridge {
namespace {

using testing::HasSubstr;

class BridgeGit : public BridgeEnds {
 protected:
  // As an attacker with all of git: a branch made in a working tree by `commands`.
  void push_branch(const std::string& commands, const std::string& id = "job-1") {
    const std::string work = folder_.path("work");
    std::filesystem::remove_all(work);
    folder_.write("job.json", sealed(job()));
    const std::string script = "set -e; git init --quiet " + work + "; cd " + work +
                               "; git config user.name x; git config user.email x@x; " + commands +
                               "; git add -A; git commit --quiet -m x; git push --quiet " + where_ +
                               " HEAD:refs/heads/kakeya-bridge/jobs/" + id;
    ASSERT_EQ(std::system(("sh -c '" + script + "'").c_str()), 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, BridgeGit, testing::Values("git"));

TEST_P(BridgeGit, TakesABranchWithOneFile) {
  push_branch("cp ../job.json .");
  EXPECT_EQ(handle().ran, 1) << said_;
  EXPECT_EQ(text_of(folder_.path("ran")), "ran\n");
}

TEST_P(BridgeGit, RefusesABranchThatBringsAnAllowlist) {
  push_branch("cp ../job.json .; echo stranger:00 > peers");
  expect_refusal("expected a branch with job.json and nothing else");
}

TEST_P(BridgeGit, RefusesALink) {
  push_branch("ln -s ../job.json job.json");
  expect_refusal("job.json: expected a regular file, got mode 120000");
}

TEST_P(BridgeGit, RefusesAFolderAndAnotherName) {
  push_branch("mkdir job.json; cp ../job.json job.json/job.json");
  expect_refusal("job.json: expected a regular file, got mode 040000");
  push_branch("cp ../job.json Job.json", "job-2");
  expect_refusal("expected a branch with job.json and nothing else");
}

TEST_P(BridgeGit, RefusesALargeFileByItsLength) {
  // Packed it is small; the length is known before it is read.
  push_branch("head -c 4000000 /dev/zero > job.json");
  expect_refusal("job.json: expected at most 16384 bytes, got 4000000");
}

// Packed it is a megabyte, and git takes all of a commit into memory.
TEST_P(BridgeGit, RefusesAPackThatGrowsInMemory) {
#ifdef __linux__
  const std::string commit = "git -C " + where_ + " -c user.name=x -c user.email=x@x commit-tree ";
  const std::string branch = " refs/heads/kakeya-bridge/jobs/job-1 ";
  const std::string script =
      "tree=$(git -C " + where_ + " mktree < /dev/null) && git -C " + where_ + " update-ref" +
      branch + "$(head -c 300000000 /dev/zero | tr '\\0' x | " + commit + "$tree -F -)";
  ASSERT_EQ(std::system(script.c_str()), 0);
  expect_refusal("git fetch ");
#endif
}

TEST_P(BridgeGit, RefusesBranchesThatAreNoIds) {
  push_branch("cp ../job.json .", "Deep/name");
  expect_refusal("refused Deep/name: expected the name of a job, an id");
}

TEST_P(BridgeGit, RunsNeitherHooksNorCommandsOfTheRepository) {
  const std::string marker = folder_.path("hooked");
  const std::string hook = "#!/bin/sh\necho x >> " + marker + "\n";
  const std::string hidden = where_ + "/other-hooks";
  std::filesystem::create_directory(hidden);
  for (const std::string& folder : {where_ + "/hooks", hidden}) {
    std::filesystem::create_directories(folder);
    for (const char* name :
         {"pre-receive", "post-receive", "update", "post-update", "reference-transaction"}) {
      std::ofstream(folder + "/" + name) << hook;
      std::filesystem::permissions(folder + "/" + name, std::filesystem::perms::owner_all);
    }
  }
  std::ofstream(hidden + "/command") << hook;
  std::filesystem::permissions(hidden + "/command", std::filesystem::perms::owner_all);
  const std::string command = hidden + "/command";
  ASSERT_EQ(std::system(("git init --quiet --bare " + folder_.path("lent.git")).c_str()), 0);
  std::ofstream(where_ + "/objects/info/alternates") << folder_.path("lent.git") << "/objects\n";
  std::ofstream(where_ + "/config", std::ios::app)
      << "[core]\n\thooksPath = " << hidden << "\n\talternateRefsCommand = " << command
      << "\n\tfsmonitor = " << command << "\n[uploadpack]\n\tpackObjectsHook = " << command << "\n";
  leave(sealed(job("count")));
  EXPECT_EQ(handle().ran, 1) << said_;
  EXPECT_TRUE(answer());
  EXPECT_FALSE(std::filesystem::exists(marker));
  // The trap is one: git alone walks into it.
  const std::string plain = "git init --quiet " + folder_.path("plain") + " && cd " +
                            folder_.path("plain") +
                            " && git -c user.name=x -c user.email=x@x commit --quiet "
                            "--allow-empty -m x && git push --quiet " +
                            where_ + " HEAD:refs/heads/plain 2> /dev/null";
  std::ignore = std::system(plain.c_str());
  EXPECT_TRUE(std::filesystem::exists(marker));
}

// A repository with a working tree would check out what is pushed, by filters of its own.
TEST_P(BridgeGit, ChecksNothingOutThatIsPushed) {
  const std::string marker = folder_.path("smudged");
  const std::string tree = folder_.path("tree");
  std::filesystem::create_directory(tree);
  const auto set_trap = [&](const std::string& branch) {
    const std::string git = "git -C " + where_ + " ";
    const std::string script = git + "config core.bare false && " + git + "config core.worktree " +
                               tree + " && " + git +
                               "config receive.denyCurrentBranch updateInstead && " + git +
                               "config filter.trap.smudge \"sh -c \\\"echo x >> " + marker +
                               "; cat\\\"\" && " + git + "symbolic-ref HEAD refs/heads/" + branch;
    ASSERT_EQ(std::system(script.c_str()), 0);
    std::filesystem::create_directories(where_ + "/info");
    std::ofstream(where_ + "/info/attributes") << "* filter=trap\n";
  };
  set_trap("kakeya-bridge/results/job-1");
  auto mailbox = open_mailbox(where_);
  ASSERT_TRUE(mailbox);
  EXPECT_FALSE((*mailbox)->put(Kind::kResult, "job-1", "{}"));
  EXPECT_FALSE(std::filesystem::exists(marker));
  // The trap is one: git alone walks into it.
  set_trap("plain");
  const std::string plain = "git init --quiet " + folder_.path("plain") + " && cd " +
                            folder_.path("plain") +
                            " && echo x > file && git add file && git -c user.name=x -c "
                            "user.email=x@x commit --quiet -m x && git push --quiet " +
                            where_ + " HEAD:refs/heads/plain 2> /dev/null";
  std::ignore = std::system(plain.c_str());
  EXPECT_TRUE(std::filesystem::exists(marker));
}

TEST_P(BridgeGit, TakesOnlyKnownWaysToARemote) {
  for (const char* where : {"ext::sh -c id.git", "--upload-pack=id.git", "-x.git"}) {
    const auto opened = open_mailbox(where);
    ASSERT_FALSE(opened) << where;
    EXPECT_THAT(opened.error().message(), HasSubstr("expected a git remote by ssh, https"))
        << where;
  }
  auto odd = open_mailbox("helper://nowhere/x");
  ASSERT_TRUE(odd);
  const auto listed = (*odd)->list(Kind::kJob);
  ASSERT_FALSE(listed);
  EXPECT_THAT(listed.error().message(), HasSubstr("git ls-remote failed"));
  const auto missing = open_mailbox(folder_.path("missing.git"));
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(), HasSubstr("git init --bare"));
}

}  // namespace
}  // namespace kakeya::bridge
