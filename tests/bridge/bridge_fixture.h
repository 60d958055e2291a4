// Both ends of a bridge on this machine, over a folder or a bare repository, with checks made up.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/scratch_files.h"
#include "job.h"
#include "keys.h"
#include "mailbox.h"
#include "presets.h"
#include "requester.h"
#include "service.h"

namespace kakeya::bridge {

inline constexpr std::int64_t kNow = 1'800'000'000;

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A preset that runs a script of this file: presets of the program know no shell.
inline Preset script(const std::string& name, const std::string& text, double seconds = 20.0) {
  return {.name = name,
          .says = "a script",
          .program = "sh",
          .arguments = {"-c", text, "sh", "{count}", "{model}"},
          .parameters = {{.name = "count", .most = 9, .standard = "3"},
                         {.name = "model", .type = Parameter::Type::kModel, .standard = "demo"}},
          .seconds = seconds,
          .output_bytes = 4096};
}

class BridgeEnds : public testing::TestWithParam<const char*> {
 protected:
  BridgeEnds() : asker_(SigningKey::make().value()), machine_(SigningKey::make().value()) {
    ::umask(022);  // folders of keys that a test makes are its own alone
    where_ = folder_.path(over_git() ? "checks.git" : "checks");
    if (over_git()) {
      const std::string command = "git init --quiet --bare " + where_;
      EXPECT_EQ(std::system(command.c_str()), 0);
    } else {
      std::filesystem::create_directory(where_);
    }
    mailbox_ = open_mailbox(where_).value();
    presets_ = {script("count", "echo \"{\\\"count\\\": $1, \\\"model\\\": \\\"$2\\\"}\""),
                script("mark", "echo ran >> " + folder_.path("ran") + "; echo {}")};
  }
  bool over_git() const { return std::string(GetParam()) == "git"; }

  Peers peers_of(const SigningKey& key, const std::string& name) const {
    return Peers::parse(Peers::line(name, key.public_key()).value(), "peers").value();
  }

  Service& service() {
    if (service_) return *service_;
    ServiceOptions options;
    options.home = folder_.path("home");
    options.presets = presets_;
    options.programs.paths["sh"] = "/bin/sh";
    options.programs.models["demo"] = "/models/demo";
    options.now = [this] { return now_; };
    options.say = [this](const std::string& line) { said_ += line + "\n"; };
    auto key = SigningKey::load(key_file(machine_)).value();
    service_ =
        Service::create(std::move(key), peers_of(asker_, "asker"), std::move(options)).value();
    return *service_;
  }
  std::string key_file(const SigningKey& key) {
    const std::string path = folder_.path("key-" + to_hex(key.public_key()));
    if (!std::filesystem::exists(path)) {
      EXPECT_TRUE(key.save(path));
    }
    return path;
  }
  // As after a restart of the machine that runs checks.
  void restart() { service_.reset(); }

  // A job that is all right, and what a test makes of it.
  Job job(const std::string& preset = "mark") const {
    Job job{.id = "job-1", .preset = preset, .issued = kNow, .expires = kNow + 60};
    job.server = machine_.public_key();
    return job;
  }
  std::string sealed(const Job& job) const { return sealed(job, asker_); }
  static std::string sealed(const Job& job, const SigningKey& key) {
    return seal(Kind::kJob, job_json(job), key).value();
  }
  void leave(const std::string& text, const std::string& id = "job-1") {
    ASSERT_TRUE(mailbox_->put(Kind::kJob, id, text));
  }

  Handled handle() {
    said_.clear();
    const auto handled = service().handle_waiting(*mailbox_);
    EXPECT_TRUE(handled) << handled.error().message();
    return handled.value_or(Handled{});
  }
  // Expects what lies there to be refused in one line that contains `part`, and nothing to run.
  void expect_refusal(const std::string& part) {
    const Handled handled = handle();
    EXPECT_EQ(handled.refused, 1);
    EXPECT_EQ(handled.ran, 0);
    const std::size_t line = said_.find("refused ");
    ASSERT_NE(line, std::string::npos) << said_;
    EXPECT_NE(said_.find(part, line), std::string::npos) << said_;
    EXPECT_EQ(said_.find('\n', line), said_.size() - 1) << said_;
    EXPECT_FALSE(std::filesystem::exists(folder_.path("ran")));
  }
  // The machine's answer, if there is one that it signed.
  std::optional<Outcome> answer(const std::string& id = "job-1") {
    const auto text = mailbox_->read(Kind::kResult, id);
    if (!text) return std::nullopt;
    const Opened opened = open_sealed(Kind::kResult, *text, peers_of(machine_, "machine")).value();
    return parse_outcome(opened.payload).value();
  }

  ScratchFolder folder_;
  SigningKey asker_;
  SigningKey machine_;
  std::string where_;
  std::unique_ptr<Mailbox> mailbox_;
  std::vector<Preset> presets_;
  std::optional<Service> service_;
  std::int64_t now_ = kNow;
  std::string said_;
};

}  // namespace kakeya::bridge
