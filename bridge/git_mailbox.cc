#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/child_process.h"
#include "base/status.h"
#include "base/temporary_folder.h"
#include "formats/printable.h"
#include "job.h"
#include "mailbox.h"
#include "small_file.h"

namespace kakeya::bridge {
namespace {

using Words = std::vector<std::string>;

constexpr double kGitSeconds = 120.0;
// The limit of what a fetch writes, before anybody knows how long the file in it is.
constexpr std::uint64_t kMostFetchedBytes = std::uint64_t{64} << 20;
// The memory limit of a git process. Objects of a pack may be thousands of times as long as they
// are there, and trees and commits are unpacked whole.
constexpr std::uint64_t kMostGitMemory = std::uint64_t{256} << 20;
constexpr const char* kBranches = "refs/heads/kakeya-bridge/";
constexpr const char* kFetched = "refs/fetched";

std::string folder_of_kind(Kind kind) {
  return kind == Kind::kJob ? "jobs/" : "results/";
}

std::string file_of_kind(Kind kind) {
  return kind == Kind::kJob ? "job.json" : "result.json";
}

std::string branch_of(Kind kind, const std::string& id) {
  return kBranches + folder_of_kind(kind) + id;
}

// The environment that git gets from this process: where to find programs, and the user's own way
// to the remote.
Words git_environment() {
  Words words = {std::string("PATH=") + kProgramFolders,
                 "LANG=C",
                 "GIT_TERMINAL_PROMPT=0",
                 "GIT_ALLOW_PROTOCOL=file:ssh:https",
                 "GIT_NO_REPLACE_OBJECTS=1",
                 "GIT_AUTHOR_NAME=kakeya bridge",
                 "GIT_AUTHOR_EMAIL=bridge@kakeya.invalid",
                 "GIT_COMMITTER_NAME=kakeya bridge",
                 "GIT_COMMITTER_EMAIL=bridge@kakeya.invalid"};
  for (const char* name : {"HOME", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME"}) {
    if (const char* value = std::getenv(name)) words.push_back(std::string(name) + "=" + value);
  }
  return words;
}

// The last line that says something.
std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last = "no message";
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  return printable(last);
}

// An empty repository of one's own, for one errand: no hooks, no configuration, no working tree.
class Errand {
 public:
  static Result<Errand> begin(const std::string& git, const std::atomic<bool>* stop) {
    KAKEYA_ASSIGN_OR_RETURN(TemporaryFolder scratch, TemporaryFolder::create());
    Errand errand(git, std::move(scratch), stop);
    KAKEYA_TRY(errand.run({"init", "--quiet", "--bare", "--template="}));
    return errand;
  }

  const std::string& folder() const { return scratch_.path(); }

  // Runs git and returns its output. Errors: kUnavailable with its last message.
  Result<std::string> run(const Words& arguments,
                          std::uint64_t most = std::uint64_t{1} << 20) const {
    Words words = {git_};
    // The settings of this process's own git; see kRemoteSide for the other one.
    for (const char* setting :
         {"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.bigFileThreshold=1m",
          "fetch.unpackLimit=1", "transfer.fsckObjects=true", "protocol.ext.allow=never",
          // Threads would have stacks and arenas of their own.
          "pack.threads=1", "gc.auto=0", "maintenance.auto=false", "commit.gpgSign=false",
          "push.gpgSign=false"}) {
      words.insert(words.end(), {"-c", setting});
    }
    words.push_back("--git-dir=" + folder() + "/repository");
    words.insert(words.end(), arguments.begin(), arguments.end());
    Words environment = git_environment();
    environment.push_back("GIT_INDEX_FILE=" + folder() + "/index");
    const ChildLimits limits = {.seconds = kGitSeconds,
                                .output_bytes = most,
                                .file_bytes = kMostFetchedBytes,
                                .memory_bytes = kMostGitMemory};
    KAKEYA_ASSIGN_OR_RETURN(
        ChildRun run,
        run_child({.words = words, .environment = environment, .folder = folder()}, limits, stop_));
    if (run.end == ChildEnd::kExited && run.code == 0) return std::move(run.output);
    const char* const why = run.end == ChildEnd::kTimedOut        ? "took too long"
                            : run.end == ChildEnd::kTooMuchOutput ? "printed too much"
                            : run.end == ChildEnd::kSignal        ? "was ended, by a limit perhaps"
                            : run.end == ChildEnd::kStopped       ? "was stopped"
                                                                  : "failed";
    return error(StatusCode::kUnavailable, "git {} {}: {}", arguments.front(), why,
                 last_line(run.messages));
  }

 private:
  Errand(std::string git, TemporaryFolder scratch, const std::atomic<bool>* stop)
      : git_(std::move(git)), scratch_(std::move(scratch)), stop_(stop) {}

  std::string git_;
  TemporaryFolder scratch_;
  const std::atomic<bool>* stop_;
};

std::string without_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class GitMailbox : public Mailbox {
 public:
  GitMailbox(std::string git, std::string remote, bool is_local, const std::atomic<bool>* stop)
      : git_(std::move(git)), remote_(std::move(remote)), is_local_(is_local), stop_(stop) {}

  Result<std::vector<Entry>> list(Kind kind) override {
    KAKEYA_ASSIGN_OR_RETURN(const Errand errand, Errand::begin(git_, stop_));
    const std::string folder = kBranches + folder_of_kind(kind);
    KAKEYA_ASSIGN_OR_RETURN(
        const std::string text,
        errand.run(to_remote("ls-remote", "--upload-pack", {"--quiet"}, {folder + "*"})));
    std::vector<Entry> entries;
    std::istringstream lines(text);
    for (std::string line; entries.size() < kMostEntries && std::getline(lines, line);) {
      const std::size_t tab = line.find('\t');
      if (tab == std::string::npos || line.compare(tab + 1, folder.size(), folder) != 0) continue;
      Entry entry{.name = line.substr(tab + 1 + folder.size()), .version = line.substr(0, tab)};
      if (!is_id(entry.name)) entry.problem = "expected the name of a job, an id";
      entries.push_back(std::move(entry));
    }
    std::ranges::sort(entries, {}, &Entry::name);
    return entries;
  }

  Result<std::string> read(Kind kind, const std::string& id) override {
    KAKEYA_ASSIGN_OR_RETURN(const Errand errand, Errand::begin(git_, stop_));
    KAKEYA_TRY(errand.run(to_remote(
        "fetch", "--upload-pack",
        {"--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", "--no-recurse-submodules"},
        {"+" + branch_of(kind, id) + ":" + kFetched})));
    KAKEYA_ASSIGN_OR_RETURN(const std::string tree, errand.run({"ls-tree", "-z", "-l", kFetched}));
    // MODE TYPE OBJECT SIZE\tNAME, and a zero byte.
    std::istringstream fields(tree.substr(0, tree.find('\t')));
    std::string mode;
    std::string type;
    std::string object;
    std::uint64_t bytes = 0;
    fields >> mode >> type >> object >> bytes;
    const std::string expected = "\t" + file_of_kind(kind) + std::string(1, '\0');
    if (tree.find('\t') == std::string::npos || tree.substr(tree.find('\t')) != expected) {
      return error(StatusCode::kFailedPrecondition, "expected a branch with {} and nothing else",
                   file_of_kind(kind));
    }
    if (mode != "100644" || type != "blob") {
      return error(StatusCode::kFailedPrecondition, "{}: expected a regular file, got mode {}",
                   file_of_kind(kind), printable(mode));
    }
    if (!fields || bytes > most_bytes(kind)) {
      return error(StatusCode::kResourceExhausted, "{}: expected at most {} bytes, got {}",
                   file_of_kind(kind), most_bytes(kind), bytes);
    }
    return errand.run({"cat-file", "blob", object}, most_bytes(kind));
  }

  Status put(Kind kind, const std::string& id, const std::string& text) override {
    KAKEYA_ASSIGN_OR_RETURN(const Errand errand, Errand::begin(git_, stop_));
    const std::string file = errand.folder() + "/text";
    KAKEYA_TRY(write_small_file(AT_FDCWD, file, text));
    KAKEYA_ASSIGN_OR_RETURN(const std::string object,
                            errand.run({"hash-object", "-w", "--no-filters", file}));
    KAKEYA_TRY(errand.run({"update-index", "--add", "--cacheinfo",
                           "100644," + without_line_end(object) + "," + file_of_kind(kind)}));
    KAKEYA_ASSIGN_OR_RETURN(const std::string tree, errand.run({"write-tree"}));
    KAKEYA_ASSIGN_OR_RETURN(
        const std::string commit,
        errand.run({"commit-tree", "-m", "kakeya bridge: " + id, without_line_end(tree)}));
    return push(errand, "+" + without_line_end(commit) + ":" + branch_of(kind, id));
  }

  Status remove(Kind kind, const std::string& id) override {
    KAKEYA_ASSIGN_OR_RETURN(const Errand errand, Errand::begin(git_, stop_));
    return push(errand, ":" + branch_of(kind, id));
  }

 private:
  Status push(const Errand& errand, const std::string& change) const {
    KAKEYA_TRY(
        errand.run(to_remote("push", "--receive-pack",
                             {"--quiet", "--no-verify", "--recurse-submodules=no"}, {change})));
    return {};
  }

  // A command that talks to the remote. Git runs the other side of a repository on this machine
  // itself, as this user: it is told not to heed that repository's hooks and commands, whatever its
  // configuration says.
  Words to_remote(const std::string& command,
                  const std::string& other_side,
                  const Words& flags,
                  const Words& branches) const {
    Words words = {command};
    words.insert(words.end(), flags.begin(), flags.end());
    if (is_local_) {
      const std::string program = other_side == "--receive-pack" ? "receive-pack" : "upload-pack";
      words.push_back(other_side + "=" + git_ +
                      " -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true"
                      " -c core.fsmonitor=false -c receive.autoGC=false"
                      // A branch that is checked out would be written into the working tree by that
                      // repository's filters.
                      " -c receive.denyCurrentBranch=refuse " +
                      program);
    }
    words.insert(words.end(), {"--", remote_});
    words.insert(words.end(), branches.begin(), branches.end());
    return words;
  }

  std::string git_;
  std::string remote_;
  bool is_local_;
  const std::atomic<bool>* stop_;
};

}  // namespace

Result<std::unique_ptr<Mailbox>> open_git_mailbox(const std::string& remote,
                                                  const std::atomic<bool>* stop) {
  if (remote.empty() || remote.front() == '-' || remote.find("::") != std::string::npos) {
    return invalid_argument("expected a git remote by ssh, https or as a path, got '{}'",
                            printable(remote));
  }
  KAKEYA_ASSIGN_OR_RETURN(std::string git, find_system_program("git"));
  const bool is_path = !is_address(remote);
  const bool is_local = is_path || remote.starts_with("file:");
  std::string place = remote;
  if (is_path) {
    place = std::filesystem::absolute(remote).string();  // git runs in another folder
    std::error_code ignored;
    if (!std::filesystem::is_directory(place, ignored)) {
      return error(StatusCode::kNotFound, "{}: expected a bare repository: git init --bare {}",
                   remote, remote);
    }
  }
  return std::make_unique<GitMailbox>(std::move(git), std::move(place), is_local, stop);
}

}  // namespace kakeya::bridge
