// Programs that nobody has read: right ones pass, wrong ones do not, and whatever they try ends.
// Without a python3 these are skipped.
#include "eval/tasks/python_runner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "eval/tasks/task_eval.h"
#include "formats/scratch_files.h"
#include "thorough.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

class PythonPrograms : public testing::Test {
 protected:
  void SetUp() override {
    auto python = PythonRunner::create("python3", {.seconds = 10.0});
    if (!python) GTEST_SKIP() << "there is no python3";
    python_.emplace(std::move(python).value());
  }
  ChildRun run(const std::string& program) const { return python_->run(program).value(); }
  PythonRunner with(const PythonLimits& limits) const {
    return PythonRunner::create(python_->path(), limits).value();
  }
  // Judges the code of a function that is to return 1.
  Judgement judge(const std::string& code) const {
    const TaskProblem problem = {.id = "one",
                                 .prompt = "def one():\n    \"\"\"1\"\"\"\n",
                                 .entry_point = "one",
                                 .test = "def check(candidate):\n    assert candidate() == 1\n"};
    return judge_code(problem, "```python\n" + code + "\n```", false, *python_).value();
  }
  // Says whether the machine keeps programs from what it should. Elsewhere the command refuses.
  bool confined() const { return python_->confinement().network && python_->confinement().files; }

  std::optional<PythonRunner> python_;
};

std::vector<TaskProblem> code_problems() {
  std::ifstream file(KAKEYA_SOURCE_DIR "/eval/data/humaneval.jsonl");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return parse_problems(TaskKind::kHumanEval, text, "data").value();
}

// All of them with KAKEYA_THOROUGH=1.
TEST_F(PythonPrograms, CanonicalSolutionsPassBothAsABodyAndAsAWholeFunction) {
  const auto problems = code_problems();
  const std::size_t step = static_cast<std::size_t>(test::by_form(40, 1));
  for (std::size_t i = 0; i < problems.size(); i += step) {
    const TaskProblem& problem = problems[i];
    const Judgement body = judge_code(problem, problem.solution, true, *python_).value();
    EXPECT_EQ(body.verdict, TaskVerdict::kPassed) << problem.id << ": " << body.detail;
    const std::string message = "```python\n" + problem.prompt + problem.solution + "```";
    const Judgement whole = judge_code(problem, message, false, *python_).value();
    EXPECT_EQ(whole.verdict, TaskVerdict::kPassed) << problem.id << ": " << whole.detail;
    const Judgement wrong = judge_code(problem, "    return None\n", true, *python_).value();
    EXPECT_EQ(wrong.verdict, TaskVerdict::kFailed) << problem.id;
  }
}

TEST_F(PythonPrograms, WrongAnswersFailAndSayWhy) {
  EXPECT_EQ(judge("def one():\n    return 1").verdict, TaskVerdict::kPassed);
  EXPECT_EQ(judge("    return 1").verdict, TaskVerdict::kPassed);
  const Judgement wrong = judge("def one():\n    return 2");
  EXPECT_EQ(wrong.verdict, TaskVerdict::kFailed);
  EXPECT_EQ(wrong.detail, "AssertionError");
  EXPECT_THAT(judge("def one(:").detail, HasSubstr("SyntaxError"));
  EXPECT_THAT(judge("def one():\n    return two").detail, HasSubstr("NameError"));
  EXPECT_EQ(judge("").verdict, TaskVerdict::kNoAnswer);
  EXPECT_EQ(judge("import os\nos.abort()").verdict, TaskVerdict::kCrashed);
  // The program writes bytes of any kind.
  const Judgement bytes = judge("import os\nos.write(2, b'\\xff\\x00' * 300)\nos._exit(3)");
  EXPECT_EQ(bytes.detail, std::string(200, '?'));
}

// To end well is not to pass.
TEST_F(PythonPrograms, AnExitBeforeTheEndOfTheTestIsNoPass) {
  for (const char* code :
       {"import os\nos._exit(0)", "import sys\nsys.exit(0)", "raise SystemExit",
        "def one():\n    raise SystemExit(0)", "def one():\n    import os\n    os._exit(0)",
        "import os\nos.execv('/bin/true', ['true'])",
        "import atexit, os\natexit.register(os._exit, 0)\ndef one():\n    return 2"}) {
    const Judgement judged = judge(code);
    EXPECT_EQ(judged.verdict, TaskVerdict::kFailed) << code;
  }
  for (const int code : {1, 2, 126, 127, 255}) {
    const std::string exits = "import os\nos._exit(" + std::to_string(code) + ")";
    EXPECT_EQ(judge(exits).verdict, TaskVerdict::kFailed) << code;
    EXPECT_EQ(run(exits).code, code);
  }
}

TEST_F(PythonPrograms, WhatDoesNotEndIsEnded) {
  const PythonRunner quick = with({.seconds = 0.5});
  const Stopwatch watch;
  for (const char* program :
       {"while True: pass", "import time\ntime.sleep(100)",
        "import signal, time\nfor s in (1, 2, 3, 15, 24): signal.signal(s, signal.SIG_IGN)\n"
        "while True: time.sleep(1)",
        "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(100)"}) {
    EXPECT_EQ(quick.run(program).value().end, ChildEnd::kTimedOut) << program;
  }
  EXPECT_LT(watch.seconds(), 60.0);
}

TEST_F(PythonPrograms, OutputMemoryAndFilesAreBounded) {
  const ChildRun loud = run("while True: print('x' * 1000)");
  EXPECT_EQ(loud.end, ChildEnd::kTooMuchOutput);
  EXPECT_EQ(loud.output.size(), python_->limits().output_bytes);
  EXPECT_THAT(run("x = bytearray(1 << 31)").output, HasSubstr("MemoryError"));
  EXPECT_THAT(
      run("with open('f', 'wb') as f:\n  for i in range(9): f.write(b'x' * (1 << 20))").output,
      HasSubstr("File too large"));
  EXPECT_EQ(run("print(open(0).read(), end='')").output, "") << "nothing stands in its input";
}

TEST_F(PythonPrograms, StartInAnEmptyFolderThatIsRemoved) {
  const ChildRun first =
      run("import os\nprint(os.listdir('.'), os.getcwd(), end='')\n"
          "os.makedirs('a/b')\nopen('a/b/c', 'w').write('x')\nos.symlink('/', 'root')");
  ASSERT_THAT(first.output, testing::StartsWith("[] /"));
  const std::string folder = first.output.substr(3);
  EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
  ::setenv("KAKEYA_TEST_SECRET", "secret", 1);
  EXPECT_EQ(run("import os\nprint('KAKEYA_TEST_SECRET' in os.environ, end='')").output, "False");
  ::unsetenv("KAKEYA_TEST_SECRET");
  // Files of this process.
  const int file = ::open("/dev/null", O_RDONLY);
  EXPECT_EQ(run("import os\nprint(sorted(os.listdir('/proc/self/fd')), end='')").output,
            "['0', '1', '2', '3']")
      << "3 is that of the listing";
  ::close(file);
}

// Each prints "done" if it gets its way.
TEST_F(PythonPrograms, OtherProcessesAndTheNetworkAreOutOfReach) {
  if (!confined()) GTEST_SKIP() << "this system does not confine processes";
  const std::string parent = std::to_string(::getpid());
  for (const std::string& program : {
           std::string("import os\nif os.fork(): os.wait()\nprint('done')"),
           std::string("import subprocess\nsubprocess.run(['true'])\nprint('done')"),
           std::string("import os\nos.posix_spawn('/bin/true', ['true'], {})\nprint('done')"),
           "import os\nos.kill(" + parent + ", 0)\nprint('done')",
           "import resource\nresource.prlimit(" + parent +
               ", resource.RLIMIT_NOFILE)\nprint('done')",
           std::string("import socket\nsocket.socket()\nprint('done')"),
           std::string("import socket\nsocket.socket(socket.AF_UNIX)\nprint('done')"),
           std::string("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\n"
                       "print('done')"),
           std::string("import os\nos.chmod('/tmp', 0o700)\nprint('done')"),
       }) {
    const ChildRun tried = run(program);
    EXPECT_THAT(tried.output, Not(HasSubstr("done"))) << program;
    EXPECT_THAT(tried.output, HasSubstr("Error")) << program;
  }
  // Threads are part of the language.
  EXPECT_EQ(run("import threading\nt = threading.Thread(target=lambda: print('done', end=''))\n"
                "t.start()\nt.join()")
                .output,
            "done");
}

TEST_F(PythonPrograms, FilesOutsideTheFolderStayAsTheyAre) {
  if (!confined()) GTEST_SKIP() << "this system does not confine processes";
  const ScratchFolder folder;
  const std::string path = folder.path("kept");
  std::ofstream(path) << "kept";
  for (const std::string& act :
       {"open('" + path + "', 'w')", "os.truncate('" + path + "', 0)", "os.remove('" + path + "')",
        "os.rename('" + path + "', 'moved')", "os.link('" + path + "', 'linked')",
        "os.chmod('" + path + "', 0)", "os.utime('" + path + "')", "os.mkdir('" + path + "-new')",
        "open('" + path + "-new', 'w')",
        // fchmodat2, which is younger than the filter's list
        "import ctypes\nassert ctypes.CDLL(None).syscall(452, -100, b'" + path + "', 0, 0) == 0"}) {
    EXPECT_THAT(run("import os\n" + act + "\nprint('done')").output,
                testing::AllOf(HasSubstr("Error"), Not(HasSubstr("done"))))
        << act;
  }
  std::ifstream file(path);
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>(file), {}}), "kept");
  EXPECT_FALSE(std::filesystem::exists(path + "-new"));
}

TEST(PythonRunner, SaysThatThereIsNoInterpreter) {
  for (const char* python : {"/bin/true", "/bin/false", "kakeya-no-python", "/", ""}) {
    const auto runner = PythonRunner::create(python, {});
    ASSERT_FALSE(runner.has_value()) << python;
    EXPECT_EQ(runner.error().code(), StatusCode::kNotFound) << python;
  }
}

}  // namespace
}  // namespace kakeya::eval
