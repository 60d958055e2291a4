// Runs the program as a user would, for the tests of its commands.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace kakeya::test {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// One value a line.
inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) values.push_back(nlohmann::json::parse(line));
  return values;
}

class Cli : public testing::Test {
 protected:
  Cli() {
    folder_ = testing::TempDir() + "kakeya_cli_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    ::setenv("XDG_CACHE_HOME", (folder_ + "/cache").c_str(), 1);  // nothing of the user's
  }
  ~Cli() override { std::filesystem::remove_all(folder_); }

  // Runs "kakeya ARGUMENTS" with `input` as standard input, after `before` in the same shell.
  Outcome kakeya(const std::string& arguments,
                 const std::string& input = "",
                 const std::string& before = "") {
    std::ofstream(folder_ + "/in") << input;
    const std::string command = before + std::string(KAKEYA_BINARY) + " " + arguments + " < " +
                                folder_ + "/in > " + folder_ + "/out 2> " + folder_ + "/err";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(folder_ + "/out"),
            slurp(folder_ + "/err")};
  }

  // Runs a command of the shell while a server with these flags listens at `socket`, or if that is
  // empty at $url; the command's exit code.
  int while_served(const std::string& socket,
                   const std::string& command,
                   const std::string& flags = "--model " KAKEYA_DEMO_MODEL) const;

  // Bad input gives one line on standard error that contains `part`, exit code 2, and no output.
  void expect_refusal(const std::string& arguments,
                      const std::string& part,
                      const std::string& input = "") {
    const Outcome outcome = kakeya(arguments, input);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
  }

  // A copy of the demo model's folder, to be damaged.
  std::string damaged_model() {
    const std::string model = folder_ + "/model";
    std::filesystem::remove_all(model);
    std::filesystem::create_directories(model);
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                             "tokenizer_config.json", "chat_template.jinja", "model.safetensors"}) {
      std::filesystem::copy(std::string(KAKEYA_DEMO_MODEL) + "/" + name, model + "/" + name);
      std::filesystem::permissions(model + "/" + name, std::filesystem::perms::owner_all);
    }
    return model;
  }

  std::string folder_;
};

inline bool passes_gate(const std::string& gate) {
  // A build of a commit with changes is one that nobody can quote.
  return std::count(gate.begin(), gate.end(), '\n') == 1 &&
         (gate.starts_with("ok ") || gate.find("provenance: dirty") != std::string::npos);
}

inline const std::string kDemoFlag = std::string("--model ") + KAKEYA_DEMO_MODEL + " ";

inline int Cli::while_served(const std::string& socket,
                             const std::string& command,
                             const std::string& flags) const {
  const std::string served = folder_ + "/served";
  const std::string script =
      ": > " + served + "; " + KAKEYA_BINARY + " serve " + flags +
      (socket.empty() ? " --port 0" : " --socket " + socket) + " > " + served +
      " 2>&1 & server=$!; while ! grep -q temperature " + served +
      " && kill -0 $server; do :; done; url=$(sed -n 's/^\\(http:[^ ]*\\) .*/\\1/p' " + served +
      "); " + command + "; code=$?; kill $server; wait $server; exit $code";
  std::ofstream(folder_ + "/script") << script;
  return WEXITSTATUS(std::system(("bash " + folder_ + "/script").c_str()));
}

}  // namespace kakeya::test
