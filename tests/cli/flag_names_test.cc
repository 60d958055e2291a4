// Errors of the library name its options, those of the program its flags.
#include "cli/flag_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "cli/program.h"
#include "kakeya/engine.h"

namespace kakeya::test {
namespace {

using cli::flag_names;
using cli::with_flags;
using testing::HasSubstr;
using testing::Not;

TEST(FlagNames, StandInPlaceOfWholeNames) {
  EXPECT_EQ(with_flags("raise SessionOptions::context (now 5)"), "raise --ctx (now 5)");
  EXPECT_EQ(with_flags("SessionOptions::sink and SessionOptions::window"), "--sink and --window");
  EXPECT_EQ(with_flags("SamplingOptions::top_p"), "--top-p");
  EXPECT_EQ(with_flags("SessionOptions::sinks, MySessionOptions::sink"),
            "SessionOptions::sinks, MySessionOptions::sink");
  EXPECT_EQ(with_flags(""), "");
}

TEST_F(Cli, EveryFlagOfTheTableIsOne) {
  const std::string help = kakeya("serve --help").out + kakeya("run --help").out +
                           kakeya("convert --help").out + kakeya("bench decode --help").out;
  for (const cli::FlagName& name : flag_names()) {
    const std::string flag(name.flag.substr(0, name.flag.find(' ')));
    EXPECT_TRUE(std::regex_search(help, std::regex(flag + "[ ,]"))) << flag;
  }
}

using Texts = std::vector<std::pair<std::string, std::string>>;

void add_texts_of(const std::filesystem::path& file, Texts& texts) {
  const std::regex text(R"re("(?:[^"\\\n]|\\.)*")re");
  std::istringstream lines(slurp(file));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos || line[first] == '#') continue;
    if (line.compare(first, 2, "//") == 0) continue;
    for (std::sregex_iterator i(line.begin(), line.end(), text), end; i != end; ++i) {
      texts.emplace_back(file.filename(), i->str());
    }
  }
}

// Texts between quotation marks in the sources of libraries below programs, with the file's name.
Texts texts_of_the_library() {
  Texts texts;
  for (const char* const folder : {"src", "convert", "service", "wire"}) {
    const std::filesystem::path root = std::filesystem::path(KAKEYA_SOURCE_DIR) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const auto extension = entry.path().extension();
      if (extension == ".cc" || extension == ".h") add_texts_of(entry.path(), texts);
    }
  }
  return texts;
}

TEST(FlagNames, TheLibraryKnowsNoFlagAndEveryOptionItNamesHasOne) {
  const std::regex flag("--[a-z]");
  // Members of types: words that begin as types do, and are no words of assembly.
  const std::regex option(R"re([A-Z]\w*[a-z]\w*::[a-z_]+)re");
  // Options that no command takes.
  const std::set<std::string> without = {"ChatOptions::tools",         "EmbeddingOptions::pooling",
                                         "Request::embedding",         "Request::score",
                                         "ScoreOptions::first",        "ScoreOptions::top_logprobs",
                                         "SessionOptions::cache_scope"};
  std::set<std::string> named;
  for (const auto& [file, text] : texts_of_the_library()) {
    EXPECT_FALSE(std::regex_search(text, flag)) << file << ": " << text;
    for (std::sregex_iterator i(text.begin(), text.end(), option), end; i != end; ++i) {
      named.insert(i->str());
      if (without.count(i->str()) > 0) continue;
      EXPECT_THAT(with_flags(i->str()), HasSubstr("--")) << file << ": " << text;
    }
  }
  EXPECT_GE(named.size(), 15U);  // else nothing was looked at
}

// An option out of range, and the flag that the program names then.
struct Case {
  std::string flag;
  std::function<Status(Engine&)> refuse;
};

Status as_status(const auto& result) {
  return result ? Status() : Status(Unexpected(result.error()));
}

Case of_session(const std::string& flag, const SessionOptions& options) {
  return {flag, [=](Engine& engine) { return as_status(engine.create_session(options)); }};
}

Case of_generation(const std::string& flag, const GenerateOptions& options) {
  return {flag, [=](Engine& engine) {
            const auto session = engine.create_session().value();
            if (const Status added = session->append(std::vector<TokenId>{2}); !added) return added;
            return as_status(session->generate(options));
          }};
}

Case of_sampling(const std::string& flag, const SamplingOptions& sampling) {
  return of_generation(flag, {.sampling = sampling});
}

Case of_engine(const std::string& flag, const std::function<void(EngineOptions&)>& change) {
  return {flag, [=](Engine&) {
            EngineOptions options{.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 1};
            change(options);
            return as_status(Engine::open(options));
          }};
}

std::vector<Case> refusals() {
  constexpr auto kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr auto kNoType = static_cast<KvType>(99);
  constexpr auto kNoWay = static_cast<Evicted>(9);
  return {
      of_session("--ctx", {.context = -1}),
      of_session("--chunk", {.max_rows = 0}),
      of_session("--kv-full", {.kv_full = kNoType}),
      of_session("--kv-sliding", {.kv_sliding = kNoType}),
      of_session("--kv-drafter", {.kv_drafter = kNoType}),
      of_session("--kv-codes", {.kv_codes = kNoType}),
      of_session("--sink", {.sink = -1}),
      of_session("--window", {.window = -1}),
      of_session("--window", {.evicted_full = Evicted::kDrop}),
      of_session("--evicted-full", {.evicted_full = kNoWay}),
      of_session("--evicted-sliding", {.evicted_sliding = kNoWay}),
      of_session("--projection", {.window = 64, .evicted_full = Evicted::kRestore}),
      of_generation("--max-tokens", {.max_tokens = -1}),
      of_generation("--draft-length", {.draft_length = -2}),
      of_generation("--logprobs", {.top_logprobs = kMostTopLogprobs + 1}),
      of_sampling("--temperature", {.temperature = kNan}),
      of_sampling("--top-k", {.top_k = -1}),
      of_sampling("--top-p", {.top_p = 0.0F}),
      of_sampling("--min-p", {.min_p = 2.0F}),
      of_sampling("--repetition-penalty", {.repetition_penalty = 0.0F}),
      of_sampling("--presence-penalty", {.presence_penalty = kNan}),
      of_sampling("--frequency-penalty", {.frequency_penalty = kNan}),
      of_sampling("--logit-bias", {.logit_bias = {{-1, 0.0F}}}),
      of_engine("--backend", [](EngineOptions& options) { options.backend = "gpu"; }),
      of_engine("--backend", [](EngineOptions& options) { options.backend = "cpu/none"; }),
      of_engine("--threads", [](EngineOptions& options) { options.num_threads = -1; }),
      of_engine("--draft", [](EngineOptions& options) { options.draft.source = "nowhere"; }),
      {"--ctx",
       [](Engine& engine) {
         const auto session = engine.create_session({.context = 4}).value();
         return session->append(std::vector<TokenId>(5, 2));
       }},
  };
}

TEST(FlagNames, WhatIsRefusedNamesTheOptionAndInTheProgramTheFlag) {
  const auto engine =
      Engine::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 1, .draft = {.source = "none"}});
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  for (const Case& refusal : refusals()) {
    const Status status = refusal.refuse(**engine);
    ASSERT_FALSE(status.has_value()) << refusal.flag;
    const std::string& message = status.error().message();
    EXPECT_THAT(message, HasSubstr("Options::"));
    EXPECT_THAT(message, Not(HasSubstr("--")));
    EXPECT_THAT(with_flags(message), HasSubstr(refusal.flag));
    EXPECT_THAT(with_flags(message), Not(HasSubstr("Options::")));
  }
}

}  // namespace
}  // namespace kakeya::test
