// The prompt cache's folder: what comes back from it gives the same tokens as what is run, and no
// file does harm, whatever is in it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "formats/scratch_files.h"
#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"
#include "runtime/prefix_files.h"
#include "runtime/prompt_cache_folder.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

using PromptCacheFiles = PromptCacheFolder;

PrefixRecord record_of(const std::string& path) {
  SnapshotFile file = SnapshotFile::open(path).value();
  std::array<std::byte, sizeof(PrefixRecord)> bytes;
  std::ranges::copy(file.section("entry").value(), bytes.begin());
  return std::bit_cast<PrefixRecord>(bytes);
}

// Writes the file anew, as one of its record with another number.
void lie(const std::string& path, std::size_t number, std::int64_t change) {
  SnapshotFile file = SnapshotFile::open(path).value();
  PrefixRecord record = record_of(path);
  auto numbers =
      std::bit_cast<std::array<std::int64_t, sizeof(record) / sizeof(std::int64_t)>>(record);
  numbers[number] += change;
  record = std::bit_cast<PrefixRecord>(numbers);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const PrefixFolder files(folder, file.key().at("tables"));
  const PrefixName name = PrefixFolder::name_of(files.mode_of(file.key()), record);
  auto writer =
      SnapshotWriter::create(folder / fmt::format("{:016x}{:016x}.prefix", name.high, name.low))
          .value();
  ASSERT_OK(writer.add("entry", std::as_bytes(std::span(&record, 1))));
  ASSERT_OK(writer.add("tokens", file.section("tokens").value()));
  ASSERT_OK(writer.add("rows", file.section("rows").value()));
  ASSERT_OK(writer.finish(file.key()));
  std::filesystem::remove(path);
}

TEST_F(PromptCacheFiles, AreOfTheirScopeAlone) {
  const Ids prompt = random_ids(300, 1);
  SessionOptions ann;
  {
    const auto engine = open("none");
    ann = engine->session_options();
    ann.cache_scope = "ann";
    answer_of(*engine, prompt, ann);
  }
  const auto engine = open("none");
  SessionOptions bob = ann;
  bob.cache_scope = "bob";
  EXPECT_EQ(engine->cached_prefix(prompt, bob).disk_bytes, 0U);
  EXPECT_EQ(answer_of(*engine, prompt, bob).kept, 0);
  EXPECT_EQ(answer_of(*engine, prompt).kept, 0);
  EXPECT_EQ(answer_of(*engine, prompt, ann).kept, 299);
}

TEST_F(PromptCacheFiles, ALaterEngineGoesOnWithoutRunningTheRows) {
  Ids turn;
  for (const char* draft : {"none", "auto"}) {
    const auto plain = open_engine(demo_options(draft));
    const Ids prompt = random_ids(300, 1);
    {
      const auto engine = open(draft);
      turn = joined({answer_of(*engine, prompt).text, random_ids(40, 2)});
    }
    const auto engine = open(draft);
    const DiskAnswer answer = answer_of(*engine, turn);
    EXPECT_EQ(answer.kept, 319) << draft;
    EXPECT_EQ(answer.stream, answer_of(*plain, turn).stream) << draft;
    const PromptCacheStatistics statistics = engine->prompt_cache_statistics();
    EXPECT_EQ(statistics.disk_hits, 1);
    EXPECT_EQ(statistics.disk_tokens, 319);
    // From memory then; and the first prompt again, whose last token is run for its logits.
    EXPECT_EQ(answer_of(*engine, turn).kept, 359);
    EXPECT_EQ(engine->prompt_cache_statistics().disk_hits, 1);
    EXPECT_EQ(answer_of(*engine, prompt).stream, answer_of(*plain, prompt).stream);
  }
  EXPECT_TRUE(notes().empty());
}

TEST_F(PromptCacheFiles, WhatMemoryGaveUpComesBack) {
  const auto plain = open_engine(demo_options("auto"));
  const auto engine = open();
  const Ids prompt = random_ids(300, 1);
  const Ids turn = joined({answer_of(*engine, prompt).text, random_ids(40, 2)});
  EXPECT_EQ(flushed(*engine).disk_written, 2);
  forget_memory(*engine);
  const DiskAnswer answer = answer_of(*engine, turn);
  EXPECT_EQ(answer.kept, 319);
  EXPECT_EQ(answer.stream, answer_of(*plain, turn).stream);
  // Nothing is written twice: two files more are those of the turn.
  EXPECT_EQ(flushed(*engine).disk_written, 4);
  EXPECT_EQ(engine->prompt_cache_statistics().disk_dropped, 0);
}

TEST_F(PromptCacheFiles, AnEntryGoesOnFromAParentInMemory) {
  const auto plain = open_engine(demo_options("none"));
  Ids turn;
  {
    const auto engine = open("none");
    turn = answer_of(*engine, random_ids(300, 1)).text;
  }
  const auto engine = open("none");
  EXPECT_EQ(answer_of(*engine, random_ids(300, 1)).kept, 299);
  const Ids next = joined({turn, random_ids(40, 2)});
  const DiskAnswer answer = answer_of(*engine, next);
  EXPECT_EQ(answer.kept, 319);
  EXPECT_EQ(answer.stream, answer_of(*plain, next).stream);
}

TEST_F(PromptCacheFiles, DamagedFilesAreNotUsed) {
  const auto plain = open_engine(demo_options("none"));
  const Ids prompt = random_ids(300, 1);
  Ids turn;
  {
    const auto engine = open("none");
    turn = joined({answer_of(*engine, prompt).text, random_ids(40, 2)});
  }
  const auto good = files();
  ASSERT_EQ(good.size(), 2U);
  std::vector<std::string> contents;
  for (const std::string& path : good) {
    std::ifstream in(path, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  const auto write = [&](std::size_t i, const std::string& bytes) {
    std::ofstream(good[i], std::ios::binary | std::ios::trunc) << bytes;
  };
  const auto try_with = [&](const char* what) {
    const std::size_t before = notes().size();
    const auto engine = open("none");
    const DiskAnswer answer = answer_of(*engine, turn);
    EXPECT_EQ(answer.stream, answer_of(*plain, turn).stream) << what;
    EXPECT_EQ(answer.kept, 0) << what;
    EXPECT_EQ(notes().size(), before + 1) << what;
  };
  // Both, so that neither turn nor prompt can start there. A new engine makes them anew.
  const auto damage = [&](const char* what, const auto& change) {
    for (const std::string& path : files()) std::filesystem::remove(path);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bytes = contents[i];
      change(bytes);
      write(i, bytes);
    }
    try_with(what);
  };
  damage("cut", [](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  damage("empty", [](std::string& bytes) { bytes.clear(); });
  damage("other magic", [](std::string& bytes) { bytes[0] = 'x'; });
  damage("last byte", [](std::string& bytes) { bytes.back() ^= 1; });
  // In the rows: found when they are read.
  for (const std::string& path : files()) std::filesystem::remove(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bytes = contents[i];
    bytes[bytes.size() / 2] ^= 1;
    write(i, bytes);
  }
  const std::size_t before = notes().size();
  const auto engine = open("none");
  EXPECT_EQ(answer_of(*engine, turn).kept, 0);
  EXPECT_GT(notes().size(), before);
}

TEST_F(PromptCacheFiles, FilesOfOtherModesAreNotUsed) {
  const Ids prompt = random_ids(300, 1);
  const auto plain = open_engine(demo_options("none"));
  answer_of(*open("none"), prompt);
  const auto engine = open("none");
  SessionOptions other = engine->session_options();
  other.kv_full = KvType::kInt8;
  EXPECT_EQ(answer_of(*engine, prompt, other).kept, 0);
  EXPECT_EQ(engine->prompt_cache_statistics().disk_hits, 0);
}

// All is alike but for one weight.
TEST_F(PromptCacheFiles, FilesOfAnotherModelAreNotUsed) {
  const Ids prompt = random_ids(300, 1);
  answer_of(*open("none"), prompt);
  const std::vector<std::string> before = files();
  const ScratchFolder scratch;
  EngineOptions options = demo_options("none");
  std::filesystem::copy(options.model_dir, scratch.path(""));  // without its folders
  options.model_dir = scratch.path("");
  {
    std::fstream weights(scratch.path("model.safetensors"),
                         std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-4096, std::ios::end);
    weights.put('\1');
  }
  const auto plain = open_engine(options);
  options.prompt_cache_bytes = 1 << 30;
  const auto engine = open_in_folder(options, 1 << 30);
  ASSERT_NE(engine, nullptr);
  const DiskAnswer answer = answer_of(*engine, prompt);
  EXPECT_EQ(answer.kept, 0);
  EXPECT_EQ(answer.stream, answer_of(*plain, prompt).stream);
  EXPECT_EQ(flushed(*engine).disk_hits, 0);
  for (const std::string& path : before) EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(PromptCacheFiles, ReadsWhereThatIsFasterThanRunning) {
  const auto engine = open("none");
  const Ids turn = joined({answer_of(*engine, random_ids(300, 1)).text, {5}});
  const auto kept = [&] {
    flushed(*engine);
    forget_memory(*engine);
    return answer_of(*engine, turn).kept;
  };
  EXPECT_EQ(kept(), 319);  // nothing is known yet
  engine->prompt_cache()->note_run(std::int64_t{1} << 50, 1e-3);
  EXPECT_EQ(kept(), 0);
  engine->prompt_cache()->note_run(1, 1e15);
  EXPECT_EQ(kept(), 320);  // the answer to it was kept in full
  EXPECT_EQ(engine->prompt_cache_statistics().disk_hits, 2);
}

TEST_F(PromptCacheFiles, KeepsItsLimit) {
  std::uint64_t one = 0;
  {
    const auto engine = open("none");
    answer_of(*engine, random_ids(200, 1));
    one = flushed(*engine).disk_bytes;
  }
  for (const std::string& path : files()) std::filesystem::remove(path);
  const std::uint64_t limit = 3 * one;
  const auto engine = open("none", std::uint64_t{1} << 30, limit);
  for (std::uint64_t i = 1; i <= 6; ++i) {
    answer_of(*engine, random_ids(200, i));
    EXPECT_LE(flushed(*engine).disk_bytes, limit);
  }
  std::uint64_t on_disk = 0;
  for (const std::string& path : files()) on_disk += std::filesystem::file_size(path);
  EXPECT_EQ(on_disk, engine->prompt_cache_statistics().disk_bytes);
  EXPECT_EQ(std::ssize(files()), engine->prompt_cache_statistics().disk_entries);
  // The oldest went.
  forget_memory(*engine);
  EXPECT_EQ(answer_of(*engine, joined({random_ids(200, 1), {5}})).kept, 0);
  EXPECT_EQ(answer_of(*engine, joined({random_ids(200, 6), {5}})).kept, 200);
}

TEST_F(PromptCacheFiles, ForgettingATextDeletesItsFiles) {
  const auto engine = open("none");
  const SessionOptions& options = engine->session_options();
  const Ids common = random_ids(200, 1);
  answer_of(*engine, common);
  const Ids one = answer_of(*engine, joined({common, random_ids(60, 2)})).text;
  const Ids two = answer_of(*engine, joined({common, random_ids(60, 3)})).text;
  flushed(*engine);
  const CachedPrefix before = engine->cached_prefix(one, options);
  EXPECT_GT(before.disk_bytes, before.bytes / 2);
  const std::uint64_t bytes = engine->prompt_cache_statistics().disk_bytes;
  EXPECT_GT(engine->forget_prefix(one, 0, options), 0U);
  EXPECT_LT(engine->prompt_cache_statistics().disk_bytes, bytes);
  EXPECT_EQ(engine->cached_prefix(one, options).tokens, 200);
  EXPECT_EQ(engine->cached_prefix(two, options).tokens, 279);
  // At once, while it may be being written.
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Ids text = answer_of(*engine, random_ids(200, 10 + i)).text;
    engine->forget_prefix(text, 0, options);
    EXPECT_EQ(engine->cached_prefix(text, options).tokens, 0);
    flushed(*engine);
    EXPECT_EQ(engine->cached_prefix(text, options).tokens, 0);
  }
}

// A copy to its file holds a text as what goes on from it does, and makes it no common beginning.
TEST_F(PromptCacheFiles, ForgettingALongTextWhileItIsWrittenForgetsAllOfIt) {
  const auto engine = open("none");
  const SessionOptions& options = engine->session_options();
  for (std::uint64_t i = 0; i < 6; ++i) {
    Ids text;
    {
      const auto session = engine->create_session(options).value();
      ASSERT_OK(session->sync(random_ids(950, 10 + i)));
      ASSERT_OK(session->generate(generation(1)));
      ASSERT_OK(session->append(random_ids(16, 40 + i)));
      ASSERT_OK(session->generate(generation(1)));
      text.assign(session->tokens().begin(), session->tokens().end());
    }
    engine->forget_prefix(text, 0, options);
    EXPECT_EQ(engine->cached_prefix(text, options).tokens, 0);
    flushed(*engine);
    EXPECT_EQ(engine->cached_prefix(text, options).tokens, 0);
  }
}

// A file whose checksums are right and whose positions lie.
TEST_F(PromptCacheFiles, PositionsThatLieDoNoHarm) {
  const auto plain = open_engine(demo_options("auto"));
  Ids turn;
  {
    const auto engine = open();
    turn = joined({answer_of(*engine, random_ids(300, 1)).text, random_ids(40, 2)});
  }
  const DiskAnswer expected = answer_of(*plain, turn);
  constexpr std::size_t kNumbers = sizeof(PrefixRecord) / sizeof(std::uint64_t);
  const std::filesystem::path copy = dir() + "-copy";
  std::filesystem::copy(dir(), copy);
  std::size_t lies = 0;
  std::size_t tried = 0;
  std::size_t combination = 0;
  for (std::size_t number = 0; number < kNumbers; ++number) {
    for (const bool of_parent : {false, true}) {
      for (const std::int64_t change :
           {of_parent ? std::int64_t{1} : std::int64_t{1} << 39, std::int64_t{-1}}) {
        if (!is_run(combination++, 3)) continue;
        ++tried;
        std::filesystem::remove_all(dir());
        std::filesystem::copy(copy, dir());
        for (const std::string& path : files()) {
          if (record_of(path).parent.is_none() != of_parent) continue;
          lie(path, number, change);
          ++lies;
        }
        const auto engine = open();
        EXPECT_EQ(answer_of(*engine, turn).stream, expected.stream) << number << ", " << change;
      }
    }
  }
  EXPECT_GE(tried, kNumbers);
  EXPECT_GE(lies, tried);
}

// The rows of one text with the tokens of another, all of whose checksums are right but that of the
// text.
TEST_F(PromptCacheFiles, AnotherTextIsNotTaken) {
  const Ids prompt = random_ids(300, 1);
  const Ids other = random_ids(300, 2);
  answer_of(*open("none"), prompt);
  for (const std::string& path : files()) {
    if (!record_of(path).parent.is_none()) continue;
    SnapshotFile file = SnapshotFile::open(path).value();
    auto writer = SnapshotWriter::create(path).value();
    ASSERT_OK(writer.add("entry", file.section("entry").value()));
    ASSERT_OK(writer.add("tokens", std::as_bytes(std::span(other))));
    ASSERT_OK(writer.add("rows", file.section("rows").value()));
    ASSERT_OK(writer.finish(file.key()));
  }
  const auto plain = open_engine(demo_options("none"));
  const auto engine = open("none");
  for (const Ids& text : {joined({prompt, {5}}), joined({other, {5}})}) {
    const DiskAnswer answer = answer_of(*engine, text);
    EXPECT_EQ(answer.kept, 0);
    EXPECT_EQ(answer.stream, answer_of(*plain, text).stream);
  }
  EXPECT_EQ(notes().size(), 1U);
}

TEST_F(PromptCacheFiles, ADiskThatRefusesIsNotedOnce) {
  const auto engine = open("none");
  std::filesystem::remove_all(dir());
  answer_of(*engine, random_ids(100, 1));
  answer_of(*engine, random_ids(100, 2));
  EXPECT_EQ(flushed(*engine).disk_dropped, 4);
  EXPECT_EQ(engine->prompt_cache_statistics().disk_written, 0);
  EXPECT_EQ(notes().size(), 1U);
  EXPECT_EQ(answer_of(*engine, random_ids(100, 1)).kept, 99);
}

// An engine finds what another one has written since it was opened, and does without what another
// one has deleted.
TEST_F(PromptCacheFiles, EnginesShareAFolder) {
  const auto writer = open("none");
  const auto reader = open("none");
  const auto plain = open_engine(demo_options("none"));
  Ids first = random_ids(200, 1);
  answer_of(*writer, first);
  EXPECT_GE(flushed(*writer).disk_written, 1);
  const DiskAnswer expected = answer_of(*plain, first);
  const DiskAnswer found = answer_of(*reader, first);
  EXPECT_EQ(found.stream, expected.stream);
  EXPECT_EQ(found.kept, 199);
  // Nobody looks more often than once a second.
  const Ids second = random_ids(200, 2);
  answer_of(*writer, second);
  flushed(*writer);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(answer_of(*reader, second).kept, 199);
  const auto late = open("none");
  for (const std::string& path : files()) std::filesystem::remove(path);
  const DiskAnswer run_again = answer_of(*late, first);
  EXPECT_EQ(run_again.stream, expected.stream);
  EXPECT_EQ(run_again.kept, 0);
  EXPECT_TRUE(notes().empty());
}

// Both write, read and delete the same files all the time.
TEST_F(PromptCacheFiles, EnginesThatShareAFolderSayTheSame) {
  constexpr std::uint64_t kRoomForSome = 3 << 19;
  const auto plain = open_engine(demo_options("none"));
  std::vector<DiskAnswer> expected;
  for (int text = 0; text < 6; ++text) {
    expected.push_back(answer_of(*plain, random_ids(150 + 40 * text, 70 + text / 2)));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::shared_ptr<EngineImpl>> engines;
  for (int i = 0; i < 2; ++i) engines.push_back(open("none", 1 << 20, kRoomForSome));
  std::vector<std::thread> threads;
  for (const auto& engine : engines) {
    threads.emplace_back([&, engine] {
      for (int round = 0; round < 15; ++round) {
        const int text = (round * 5 + (engine == engines[0] ? 0 : 3)) % 6;
        const auto answer = answer_of(*engine, random_ids(150 + 40 * text, 70 + text / 2));
        if (answer.stream != expected[static_cast<std::size_t>(text)].stream) ++wrong;
        engine->prompt_cache()->flush_files();  // a slow disk would not keep up
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  std::int64_t written = 0;
  for (const auto& engine : engines) written += flushed(*engine).disk_written;
  EXPECT_GT(written, std::ssize(files()) + 4) << "nothing was deleted";
  EXPECT_TRUE(notes().empty()) << notes().front();
}

TEST_F(PromptCacheFiles, RefusesWhatCannotBe) {
  EngineOptions options = demo_options("none");
  options.prompt_cache_dir = dir();
  EXPECT_EQ(EngineImpl::open(options).error().code(), StatusCode::kInvalidArgument);
  options.prompt_cache_bytes = 1 << 20;
  options.prompt_cache_dir = "/proc/none/such";
  EXPECT_EQ(EngineImpl::open(options).error().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kakeya::test
