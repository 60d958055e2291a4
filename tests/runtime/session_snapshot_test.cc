// Sessions on disk: a restored one goes on exactly as the saved one would have, a file that does
// not fit or is damaged is refused in one line, and a killed writer leaves a whole file.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/random.h"
#include "formats/safetensors.h"
#include "formats/scratch_files.h"
#include "formats/snapshot_file.h"
#include "formats/snapshot_scratch.h"
#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"
#include "runtime/session_modes.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

// One line that names the file.
void expect_refused(const Result<std::string>& result, StatusCode code, const std::string& says) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), code) << result.error().message();
  EXPECT_EQ(result.error().message().find('\n'), std::string::npos);
  EXPECT_NE(result.error().message().find(says), std::string::npos) << result.error().message();
}

// The lowest byte of an element in the middle of each tensor of a file, little-endian.
std::vector<std::pair<std::string, std::uint64_t>> middles_of_tensors(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  std::vector<std::pair<std::string, std::uint64_t>> places;
  for (const TensorView& tensor : file.tensors()) {
    const std::byte* const middle =
        tensor.data + num_elements(tensor.shape) / 2 * dtype_bytes(tensor.dtype);
    places.emplace_back(tensor.name,
                        static_cast<std::uint64_t>(middle - file.file().bytes().data()));
  }
  return places;
}

void flip_lowest_bit(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 1));
}

// Partial files of a target.
int files_beside(const std::string& target) {
  const std::string name = std::filesystem::path(target).filename().string() + ".partial-";
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(target).parent_path())) {
    const std::string found = entry.path().filename().string();
    if (found.starts_with(name) && found.size() == name.size() + 6) ++count;
  }
  return count;
}

class SessionSnapshot : public testing::Test {
 protected:
  const ScratchFolder folder_;
  const std::string path_ = folder_.path("session");
};

// Rings of the demo model wrap every 191 tokens, and with rows dropped every 131.
TEST_F(SessionSnapshot, ARestoredSessionGoesOnAsTheSavedOneWould) {
  std::vector<SessionMode> modes(6, {"", {.context = 1024, .max_rows = 64}});
  modes[1].options.kv_full = modes[1].options.kv_drafter = KvType::kE8;
  modes[1].options.kv_sliding = KvType::kInt8;
  modes[2].comparison.kv_pairs = true;
  modes[3].options.window = 64;
  modes[3].options.evicted_full = modes[3].options.evicted_sliding = Evicted::kDrop;
  modes[4] = modes[3];
  modes[4].options.evicted_full = modes[4].options.evicted_sliding = Evicted::kRestore;
  modes[5] = modes[4];
  modes[5].options.evicted_full = Evicted::kKeep;
  for (const char* draft : {"none", "auto", "ngram"}) {
    const auto engine = open_engine(restoring_options(draft));
    for (const SessionMode& mode : modes) {
      // Without a drafter, and with two, the same code keeps rows: a few modes will do.
      if (draft != std::string("auto") && &mode != &modes[0] && &mode != &modes[4]) continue;
      // A short session, one whose rings have wrapped three times, and one that was taken back.
      for (const std::int64_t count : {10, 500, 501}) {
        if (count == 500 && !thorough()) continue;
        const auto session = create_session(*engine, mode);
        ASSERT_OK(session->append(random_ids(static_cast<std::size_t>(count), 1)));
        go_on(*session, generation(30));
        if (count == 501) {
          ASSERT_OK(session->truncate(520));
        }
        ASSERT_OK(session->snapshot(path_, "a note"));
        const auto restored = create_session(*engine, mode);
        ASSERT_OK(restored->append(random_ids(40, 9)));
        go_on(*restored, generation(5));  // something else was there
        const auto note = restored->restore(path_);
        ASSERT_OK(note);
        EXPECT_EQ(*note, "a note");
        ASSERT_TRUE(std::ranges::equal(restored->tokens(), session->tokens()));
        for (const float temperature : {0.0F, 1.0F}) {
          ASSERT_EQ(go_on(*restored, generation(40, temperature)),
                    go_on(*session, generation(40, temperature)))
              << draft << ", " << count;
        }
        // Going back reaches as far.
        const auto held = static_cast<Position>(session->tokens().size());
        Position back = held - 1;
        for (; back > 0 && session->truncate(back); back -= 7) {
          ASSERT_OK(restored->truncate(back));
        }
        if (back > 0) {
          ASSERT_FALSE(restored->truncate(back).has_value()) << back;
        }
        ASSERT_EQ(session->tokens().size(), restored->tokens().size());
        ASSERT_EQ(go_on(*restored, generation(10)), go_on(*session, generation(10)));
      }
    }
  }
}

TEST_F(SessionSnapshot, IsTakenAtAnyMoment) {
  const auto engine = open_engine(restoring_options("auto"));
  const auto session = engine->create_session().value();
  const auto restored = engine->create_session().value();
  // Nothing; tokens that are pending; a prompt that was run, which has logits.
  ASSERT_OK(session->snapshot(path_));
  ASSERT_OK(restored->append(random_ids(20, 2)));
  ASSERT_OK(restored->restore(path_));
  EXPECT_TRUE(restored->tokens().empty());
  ASSERT_OK(session->append(random_ids(300, 2)));
  ASSERT_OK(session->snapshot(path_));
  ASSERT_OK(restored->restore(path_));
  EXPECT_EQ(restored->position(), 0);
  ASSERT_OK(session->prefill());
  ASSERT_OK(session->snapshot(path_));
  const auto run = engine->create_session().value();
  ASSERT_OK(run->restore(path_));
  EXPECT_EQ(run->position(), 299);
  const Stream expected = go_on(*session, generation(40));
  EXPECT_EQ(go_on(*run, generation(40)), expected);
  EXPECT_EQ(go_on(*restored, generation(40)), expected);
}

// Shared blocks are not written when one of the sharers is restored.
TEST_F(SessionSnapshot, RestoringAForkLeavesTheOthersAlone) {
  const auto engine = open_engine(restoring_options("auto"));
  const auto other = engine->create_session().value();
  ASSERT_OK(other->append(random_ids(400, 3)));
  go_on(*other, generation(20));
  ASSERT_OK(other->snapshot(path_));
  const auto parent = engine->create_session().value();
  const auto alone = engine->create_session().value();
  for (Session* session : {parent.get(), alone.get()}) {
    ASSERT_OK(session->append(random_ids(350, 4)));
    go_on(*session, generation(20));
  }
  const auto fork = parent->fork().value();
  ASSERT_OK(fork->restore(path_));
  EXPECT_EQ(go_on(*fork, generation(50)), go_on(*other, generation(50)));
  EXPECT_EQ(go_on(*parent, generation(50)), go_on(*alone, generation(50)));
}

TEST_F(SessionSnapshot, RefusesAFileOfSomethingElseAndSaysWhatDiffers) {
  const EngineOptions own = restoring_options("auto");
  {
    const auto engine = open_engine(own);
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(random_ids(30, 5)));
    go_on(*session, generation(5));
    ASSERT_OK(session->snapshot(path_));
  }
  struct Case {
    std::string says;
    std::function<void(EngineOptions&)> change;
  };
  const Case cases[] = {
      {"key compute: expected \"f32\", got \"fast\"",
       [](EngineOptions& o) {
         o.compute = Compute::kF32;
         o.session.kv_full = o.session.kv_sliding = o.session.kv_drafter = KvType::kBf16;
       }},
      {"key drafter: expected \"none\"", [](EngineOptions& o) { o.draft.source = "none"; }},
      {"key backend: expected \"cpu/portable\"",
       [](EngineOptions& o) { o.backend = "cpu/portable"; }},
      {"key context: expected \"512\", got \"1024\"",
       [](EngineOptions& o) { o.session.context = 512; }},
      {"key codes: expected \"bf16 of 96\", got \"none\"",
       [](EngineOptions& o) {
         o.session.window = 64;
         o.session.evicted_full = Evicted::kRestore;
       }},
      {"key rows a pass", [](EngineOptions& o) { o.session.max_rows = 32; }},
      {"key full layers: expected \"int8 one vector\", got \"bf16 one vector\"",
       [](EngineOptions& o) { o.session.kv_full = KvType::kInt8; }},
      {"key sliding layers", [](EngineOptions& o) { o.session.kv_sliding = KvType::kInt8; }},
      {"key drafter's layers", [](EngineOptions& o) { o.session.kv_drafter = KvType::kInt8; }},
      {"sink 4 kept 64", [](EngineOptions& o) {
         o.session.window = 64;
         o.session.evicted_full = Evicted::kDrop;
       }}};
  for (const Case& c : cases) {
    EngineOptions options = own;
    c.change(options);
    const auto engine = open_engine(options);
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(random_ids(12, 6)));
    expect_refused(session->restore(path_), StatusCode::kFailedPrecondition, path_);
    expect_refused(session->restore(path_), StatusCode::kFailedPrecondition, c.says);
    EXPECT_EQ(session->tokens().size(), 12U);
  }
}

// The models are the same but for one weight, and but for one word of the configuration.
TEST_F(SessionSnapshot, RefusesAFileOfAnotherModelOfTheSameShape) {
  const auto copy = [&](const char* name) {
    const std::string dir = folder_.path(name);
    std::filesystem::copy(KAKEYA_DEMO_MODEL, dir, std::filesystem::copy_options::recursive);
    return dir;
  };
  const auto save_and_restore = [&](const std::string& dir) {
    EngineOptions options = restoring_options("none");
    const auto engine = open_engine(options);
    const auto session = engine->create_session().value();
    EXPECT_TRUE(session->snapshot(path_).has_value());
    options.model_dir = dir;
    const auto other = open_engine(options);
    return other->create_session().value()->restore(path_);
  };
  const std::string same = copy("same");
  ASSERT_OK(save_and_restore(same));
  const std::string edited = copy("edited");
  {
    std::fstream file(edited + "/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-2, std::ios::end);  // the last element of the last tensor
    const auto at = file.tellg();
    char low = 0;
    file.get(low);
    file.seekp(at);
    file.put(static_cast<char>(low ^ 1));
  }
  expect_refused(save_and_restore(edited), StatusCode::kFailedPrecondition, "key model");
  const std::string configured = copy("configured");
  std::ofstream(configured + "/config.json", std::ios::app) << "\n";
  expect_refused(save_and_restore(configured), StatusCode::kFailedPrecondition, "key model");
}

// One bit of any tensor: of matrices, norms, scalars, experts, tables that are read in place,
// drafters. tests/backend/weight_hash_test.cc has all places of a tensor and all formats.
TEST_F(SessionSnapshot, RefusesAFileOfWeightsThatDifferInOneBit) {
  struct Case {
    std::string model;
    std::string edited;  // folder of the weights that are changed, under a copy of all networks
    std::string drafter = "none";
    std::string says = "key ";
  };
  const std::string all = folder_.path("networks");
  std::filesystem::copy(std::string(KAKEYA_TEST_DATA) + "/networks", all,
                        std::filesystem::copy_options::recursive);
  const std::vector<Case> cases = {
      {all + "/gemma4-moe", all + "/gemma4-moe"},
      {all + "/gemma4-e", all + "/gemma4-e"},
      {all + "/gemma4-moe", all + "/dflash-gemma4", all + "/dflash-gemma4", "key drafter"}};
  for (const Case& c : cases) {
    const auto open = [&] {
      return Engine::open({.model_dir = c.model,
                           .num_threads = 2,
                           .session = {.context = 64},
                           .draft = {.source = c.drafter}})
          .value();
    };
    ASSERT_OK(open()->create_session().value()->snapshot(path_));
    ASSERT_OK(open()->create_session().value()->restore(path_));
    const std::string weights = c.edited + "/model.safetensors";
    const std::string original = read_file(weights);
    for (const auto& [name, at] : middles_of_tensors(weights)) {
      flip_lowest_bit(weights, at);
      expect_refused(open()->create_session().value()->restore(path_),
                     StatusCode::kFailedPrecondition, c.says);
      if (HasFailure()) FAIL() << c.edited << ": " << name;
      flip_lowest_bit(weights, at);
    }
    EXPECT_TRUE(read_file(weights) == original);
  }
}

// The weights are the same with another tokenizer, and with another chat template.
TEST_F(SessionSnapshot, RefusesAFileOfAnotherTokenizer) {
  EngineOptions options = restoring_options("none");
  ASSERT_OK(open_engine(options)->create_session().value()->snapshot(path_));
  for (const auto& [file, says] : {std::pair("tokenizer.json", "key tokenizer"),
                                   std::pair("chat_template.jinja", "key chat template")}) {
    options.model_dir = folder_.path(file);
    std::filesystem::copy(KAKEYA_DEMO_MODEL, options.model_dir,
                          std::filesystem::copy_options::recursive);
    ASSERT_TRUE(std::filesystem::exists(options.model_dir + "/" + file));
    std::ofstream(options.model_dir + "/" + file, std::ios::app) << "\n";
    expect_refused(open_engine(options)->create_session().value()->restore(path_),
                   StatusCode::kFailedPrecondition, says);
  }
}

TEST_F(SessionSnapshot, RefusesDamageAndStaysAsItWas) {
  const auto engine = open_engine(restoring_options("auto"));
  const auto session = engine->create_session().value();
  const auto alone = engine->create_session().value();
  for (Session* each : {session.get(), alone.get()}) {
    ASSERT_OK(each->append(random_ids(220, 7)));
    go_on(*each, generation(5));
  }
  const auto other = engine->create_session().value();
  ASSERT_OK(other->append(random_ids(260, 8)));
  go_on(*other, generation(5));
  ASSERT_OK(other->snapshot(path_));
  const std::string whole = read_file(path_);
  SequenceRng random(1);
  const auto expect_damage = [&](const std::string& bytes) {
    const std::string damaged = folder_.write("damaged", bytes);
    const auto result = session->restore(damaged);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().message().find('\n'), std::string::npos);
    EXPECT_NE(result.error().message().find(damaged), std::string::npos);
  };
  for (int i = 0; i < 200; ++i) {
    std::string bytes = whole;
    bytes[random.below(bytes.size())] ^= static_cast<char>(1 << random.below(8));
    expect_damage(bytes);
    expect_damage(whole.substr(0, random.below(whole.size())));
  }
  expect_refused(session->restore(folder_.path("none")), StatusCode::kNotFound, "none");
  EXPECT_EQ(go_on(*session, generation(40)), go_on(*alone, generation(40)));
}

// Files whose checksums are right and whose sections are not what a session has.
TEST_F(SessionSnapshot, RefusesSectionsThatLieWithinAWholeFile) {
  const auto engine = open_engine(restoring_options("auto"));
  const auto session = engine->create_session().value();
  ASSERT_OK(session->append(random_ids(260, 8)));
  go_on(*session, generation(5));
  ASSERT_OK(session->snapshot(path_, "note"));
  const auto saved = read_snapshot(path_).value();
  const SnapshotKey& key = saved.first;
  const Contents& contents = saved.second;
  const auto alone = engine->create_session().value();
  ASSERT_OK(alone->restore(path_));
  const auto edit = [&](const std::string& section,
                        const std::function<void(std::string&)>& change) {
    Contents edited = contents;
    for (auto& [name, bytes] : edited) {
      if (name == section) change(bytes);
    }
    const std::string path = folder_.path("edited");
    EXPECT_TRUE(write_snapshot(path, key, edited).has_value());
    return session->restore(path);
  };
  const auto number = [](std::size_t index, std::int64_t value) {
    return
        [=](std::string& bytes) { std::memcpy(bytes.data() + index * 8, &value, sizeof(value)); };
  };
  for (std::size_t index = 0; index < 5; ++index) {
    for (const std::int64_t value :
         {std::int64_t{-1}, std::int64_t{1}, std::int64_t{1} << 20, INT64_MAX, INT64_MIN}) {
      const auto result = edit("state", number(index, value));
      ASSERT_FALSE(result.has_value()) << index << ", " << value;
      EXPECT_EQ(result.error().code(), StatusCode::kDataLoss);
      EXPECT_EQ(result.error().message().find('\n'), std::string::npos);
      if (index > 0 || value == 1) continue;  // as many tokens may have been run
      EXPECT_NE(result.error().message().find("cannot have been run"), std::string::npos) << value;
    }
  }
  for (const auto& [name, bytes] : contents) {
    if (name == "note") continue;
    EXPECT_FALSE(edit(name, [](std::string& b) { b.push_back(0); }).has_value()) << name;
    if (!bytes.empty()) {
      EXPECT_FALSE(edit(name, [](std::string& b) { b.pop_back(); }).has_value()) << name;
    }
  }
  EXPECT_FALSE(edit("tokens", [](std::string& b) { b[3] = 0x70; }).has_value());
  Contents more = contents;
  more.emplace_back("more", "x");
  ASSERT_OK(write_snapshot(folder_.path("more"), key, more));
  expect_refused(session->restore(folder_.path("more")), StatusCode::kDataLoss, "sections, got");
  SnapshotKey newer = key;
  newer["layout"] = "7";
  ASSERT_OK(write_snapshot(folder_.path("newer"), newer, contents));
  expect_refused(session->restore(folder_.path("newer")), StatusCode::kFailedPrecondition,
                 "key layout: expected \"6\", got \"7\"");
  // Rows of types that earlier versions had.
  for (const auto& [name, type, kept] :
       {std::tuple("full layers", "int4", "int4 one vector"),
        std::tuple("drafter's layers", "d4", "d4"), std::tuple("codes", "int4r", "int4r of 96")}) {
    SnapshotKey removed = key;
    removed[name] = kept;
    ASSERT_OK(write_snapshot(folder_.path("removed"), removed, contents));
    expect_refused(session->restore(folder_.path("removed")), StatusCode::kFailedPrecondition,
                   fmt::format("key {}: {} was removed, others lose less", name, type));
  }
  // As written where a state had two numbers more.
  SnapshotKey wider = key;
  wider["layout"] = "4";
  ASSERT_OK(write_snapshot(folder_.path("wider"), wider, contents));
  expect_refused(session->restore(folder_.path("wider")), StatusCode::kFailedPrecondition,
                 "key layout: expected \"6\", got \"4\"");
  // As written before tokenizers were part of the key.
  SnapshotKey older = key;
  older["layout"] = "1";
  for (const char* name : {"tokenizer", "chat template", "tables"}) older.erase(name);
  ASSERT_OK(write_snapshot(folder_.path("older"), older, contents));
  expect_refused(session->restore(folder_.path("older")), StatusCode::kFailedPrecondition,
                 "key layout: expected \"6\", got \"1\"");
  EXPECT_EQ(go_on(*session, generation(40)), go_on(*alone, generation(40)));
}

TEST_F(SessionSnapshot, RefusesANoteThatIsTooLong) {
  const auto engine = open_engine(restoring_options("none"));
  const auto session = engine->create_session().value();
  const Status refused = session->snapshot(path_, std::string((16 << 20) + 1, 'n'));
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->snapshot(folder_.path("no/folder")).error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(files_in(folder_), 0U);
}

TEST_F(SessionSnapshot, RemovesWhatKilledWritersLeft) {
  const auto engine = open_engine(restoring_options("none"));
  const auto session = engine->create_session().value();
  const auto old = folder_.write("session.partial-aB3xyz", "x");
  const std::string kept[] = {folder_.write("session.partial-long-name", "x"),
                              folder_.write("other.partial-aB3xyz", "x"),
                              folder_.write("session.partial-", "x")};
  auto other_writer = AtomicFile::create(path_).value();
  EXPECT_EQ(files_beside(path_), 2);  // that of the writer and the old one
  ASSERT_OK(session->snapshot(path_));
  EXPECT_FALSE(std::filesystem::exists(old));
  for (const std::string& path : kept) EXPECT_TRUE(std::filesystem::exists(path)) << path;
  EXPECT_EQ(files_beside(path_), 1);
  ASSERT_OK(other_writer.commit());
}

// A child writes one session over another again and again and is killed at some moment.
TEST_F(SessionSnapshot, AKilledWriterLeavesAWholeFile) {
  EngineOptions options = restoring_options("auto");
  options.num_threads = 1;
  int killed_while_writing = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto engine = Engine::open(options);
      if (!engine) ::_exit(1);
      const auto first = (*engine)->create_session().value();
      const auto second = (*engine)->create_session().value();
      if (!first->append(random_ids(100, 1)) || !second->append(random_ids(300, 2))) ::_exit(2);
      if (!first->prefill() || !second->prefill()) ::_exit(3);
      while (true) {
        if (!first->snapshot(path_) || !second->snapshot(path_)) ::_exit(4);
      }
    }
    while (!std::filesystem::exists(path_)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(1000 * (round % 7) + 137 * round));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const auto engine = open_engine(options);
    const auto session = engine->create_session().value();
    ASSERT_OK(session->restore(path_));
    const bool first = session->tokens().size() == 100;
    EXPECT_TRUE(
        std::ranges::equal(session->tokens(), first ? random_ids(100, 1) : random_ids(300, 2)));
    if (files_in(folder_) > 1) ++killed_while_writing;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.root())) {
      if (round < 11) std::filesystem::remove(entry.path());
    }
  }
  EXPECT_GT(killed_while_writing, 0);
}

}  // namespace
}  // namespace kakeya::test
