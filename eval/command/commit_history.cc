#include "eval/command/commit_history.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/status.h"

namespace kakeya::cli {
namespace {

Result<std::string> ask_git(const std::string& folder, const std::vector<std::string>& words) {
  KAKEYA_ASSIGN_OR_RETURN(std::string git, find_system_program("git"));
  std::error_code failed;
  ChildProgram program{.words = {std::move(git)},
                       .folder = std::filesystem::absolute(folder, failed).string()};
  program.words.insert(program.words.end(), words.begin(), words.end());
  program.environment = {std::string("PATH=") + kProgramFolders, "LC_ALL=C"};
  // Where it is said which checkouts of other users are to be trusted.
  if (const char* home = std::getenv("HOME"))  // NOLINT(concurrency-mt-unsafe)
    program.environment.push_back(std::string("HOME=") + home);
  KAKEYA_ASSIGN_OR_RETURN(ChildRun run, run_child(program, {}));
  if (run.end != ChildEnd::kExited || run.code != 0) {
    return error(StatusCode::kUnavailable, "{}", run.messages.substr(0, run.messages.find('\n')));
  }
  return std::move(run.output);
}

}  // namespace

Result<eval::CommitHistory> read_commit_history(const std::string& folder) {
  KAKEYA_ASSIGN_OR_RETURN(
      const std::string answers,
      ask_git(folder, {"rev-parse", "--is-shallow-repository", "--show-toplevel"}));
  std::istringstream lines(answers);
  std::string shallow;
  std::string top;
  std::getline(lines, shallow);
  std::getline(lines, top);
  std::error_code failed;
  if (!std::filesystem::exists(std::filesystem::path(top) / "include/kakeya/options.h", failed)) {
    return error(StatusCode::kUnavailable, "{} is a checkout of something else", top);
  }
  if (shallow != "false") {
    return error(StatusCode::kUnavailable, "{} has not all of its history", top);
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string log, ask_git(folder, {"log", "--format=%H %ct"}));
  std::istringstream commits(log);
  eval::CommitHistory history;
  std::string hash;
  for (std::int64_t seconds = 0; commits >> hash >> seconds;) history[hash] = seconds;
  return history;
}

}  // namespace kakeya::cli
