// Engines whose weights come from a file of packed ones: the same bits and the same ledger as
// without, and no file of other weights is ever used.
#include "runtime/weights_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "base/atomic_file.h"
#include "base/checksum.h"
#include "formats/gguf_model_scratch.h"
#include "formats/safetensors.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {
namespace {

namespace fs = std::filesystem;

const std::string kNetworks = std::string(KAKEYA_TEST_DATA) + "/networks/";

struct Opening {
  std::string model;
  std::string cache = {};  // folder
  std::string drafter = "none";
  Compute compute = Compute::kFast;
  std::string backend = "cpu";
  bool trust = false;
  std::function<void(const std::string&)> on_note = {};
};

Result<std::unique_ptr<EngineImpl>> open_engine(const Opening& opening) {
  return EngineImpl::open({.model_dir = opening.model,
                           .backend = opening.backend,
                           .compute = opening.compute,
                           .num_threads = 2,
                           .pin_threads = false,
                           .session = {.context = 128},
                           .draft = {.source = opening.drafter},
                           .weights_cache = opening.cache,
                           .weights_cache_trust = opening.trust,
                           .on_note = opening.on_note});
}

// Logits of all rows of a short text.
std::vector<float> logits(EngineImpl& engine) {
  const std::vector<TokenId> prompt = {2, 105, 200, 17, 250, 200, 17, 299, 9, 33};
  const auto rows = static_cast<std::int64_t>(prompt.size());
  const auto timeline = engine.create_timeline({.context = 128}, rows).value();
  return run(*timeline, prompt, {}, rows).logits;
}

std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".packed") files.push_back(entry.path());
  }
  return files;
}

// The only packed file of a folder.
fs::path only_file(const std::string& folder) {
  const auto files = files_in(folder);
  EXPECT_EQ(files.size(), 1U);
  return files.empty() ? fs::path() : files.front();
}

void overwrite(const fs::path& file, std::uint64_t offset, std::string_view bytes) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream << bytes;
  ASSERT_TRUE(stream.good());
}

// Where the first entry of a safetensors file begins.
std::size_t payload_offset(const std::string& file) {
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  return sizeof(header) + static_cast<std::size_t>(header);
}

// A model of one's own, to be changed. Its time is long ago: the clock of a file system moves in
// steps of milliseconds.
std::string copied_model(const ScratchFolder& scratch) {
  const std::string model = scratch.path("model");
  fs::copy(kNetworks + "qwen3-tied", model);
  fs::last_write_time(model + "/model.safetensors",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return model;
}

class WeightsCacheNetworks : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All,
                         WeightsCacheNetworks,
                         testing::Values("gemma4-moe",
                                         "gemma4-moe-edge",
                                         "gemma4-dense",
                                         "gemma4-e",
                                         "gemma4-e4",
                                         "qwen3-tied",
                                         "qwen3-untied"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(WeightsCacheNetworks, MappedWeightsGiveTheSameBitsAndLedger) {
  const std::string drafter = GetParam() == "gemma4-moe" ? kNetworks + "dflash-gemma4" : "none";
  for (const Compute compute : {Compute::kFast, Compute::kF32}) {
    const ScratchFolder cache;
    const Opening plain{.model = kNetworks + GetParam(), .drafter = drafter, .compute = compute};
    Opening cached = plain;
    cached.cache = cache.path("made/on/the/way");
    const auto without = open_engine(plain);
    ASSERT_OK(without);
    const auto expected = logits(**without);
    const auto writing = open_engine(cached);
    ASSERT_OK(writing);
    EXPECT_EQ(logits(**writing), expected);
    const auto files = files_in(cached.cache);
    ASSERT_EQ(files.size(), drafter == "none" ? 1U : 2U);
    const auto written = fs::last_write_time(files.front());

    const auto mapped = open_engine(cached);
    ASSERT_OK(mapped);
    EXPECT_EQ(logits(**mapped), expected);
    EXPECT_EQ((*mapped)->footprint().reserved, (*without)->footprint().reserved);
    EXPECT_EQ(fs::last_write_time(files.front()), written);
    EXPECT_EQ(files_in(cached.cache).size(), files.size());
  }
}

TEST(WeightsCache, DamagedNumbersAreMadeAnew) {
  const ScratchFolder cache;
  const Opening opening{.model = kNetworks + "qwen3-tied", .cache = cache.root()};
  const auto expected = logits(**open_engine(opening));
  const fs::path file = only_file(cache.root());
  const std::string whole = read_file(file);
  // One bit at a time: in the first entry, the middle, the last entry and the numbers at the end.
  for (const std::size_t at :
       {payload_offset(whole), whole.size() / 2, whole.size() - 1, whole.size() - 9}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(file, std::ios::binary) << damaged;
    const auto engine = open_engine(opening);
    ASSERT_OK(engine);
    EXPECT_EQ(logits(**engine), expected) << at;
    EXPECT_TRUE(read_file(file) == whole) << at;
  }
}

// That nothing else than the file is read is seen with trust only: damage is not looked for then.
TEST(WeightsCache, TrustedFilesAreTakenAsTheyAre) {
  const ScratchFolder cache;
  Opening opening{.model = kNetworks + "qwen3-tied", .cache = cache.root()};
  const auto expected = logits(**open_engine(opening));
  opening.trust = true;
  EXPECT_EQ(logits(**open_engine(opening)), expected);
  const fs::path file = only_file(cache.root());
  overwrite(file, fs::file_size(file) / 2, std::string(4096, '?'));
  EXPECT_NE(logits(**open_engine(opening)), expected);
}

TEST(WeightsCache, BothWaysOfComputingHaveFilesOfTheirOwn) {
  const ScratchFolder cache;
  for (const Compute compute : {Compute::kFast, Compute::kF32, Compute::kFast}) {
    ASSERT_OK(open_engine(
        {.model = kNetworks + "qwen3-tied", .cache = cache.root(), .compute = compute}));
  }
  EXPECT_EQ(files_in(cache.root()).size(), 2U);
}

TEST(WeightsCache, LiesBesideTheModel) {
  const ScratchFolder scratch;
  const std::string model = copied_model(scratch);
  ASSERT_OK(open_engine({.model = model, .cache = "beside"}));
  EXPECT_EQ(only_file(model).filename().string().substr(0, 6), "model-");
  const std::string gguf =
      model_as_gguf(kNetworks + "qwen3-tied").write(scratch.path("small.gguf"));
  ASSERT_OK(open_engine({.model = gguf, .cache = "beside"}));
  EXPECT_EQ(only_file(scratch.root()).filename().string().substr(0, 11), "small.gguf-");
}

TEST(WeightsCache, ChangedModelsAreLoadedAnew) {
  const ScratchFolder scratch;
  const std::string model = copied_model(scratch);
  const Opening opening{.model = model, .cache = scratch.path("cache")};
  const auto before = logits(**open_engine(opening));
  const std::string weights = model + "/model.safetensors";
  overwrite(weights, fs::file_size(weights) - 1000, std::string(16, '\x3c'));
  const auto changed = open_engine(opening);
  ASSERT_OK(changed);
  const auto expected = logits(**open_engine({.model = model}));
  EXPECT_NE(expected, before);
  EXPECT_EQ(logits(**changed), expected);
  EXPECT_EQ(logits(**open_engine(opening)), expected);  // from the file that was made anew
}

// Others may write into the folder as well.
TEST(WeightsCache, ReplacesALinkAndNotTheFileBehindIt) {
  const ScratchFolder cache;
  const ScratchFolder elsewhere;
  const Opening opening{.model = kNetworks + "qwen3-tied", .cache = cache.root()};
  const auto expected = logits(**open_engine(opening));
  const fs::path file = only_file(cache.root());
  const std::string whole = read_file(file);
  for (const bool is_there : {true, false}) {
    const std::string target = elsewhere.path(is_there ? "precious" : "none");
    if (is_there) elsewhere.write("precious", "mine");
    fs::remove(file);
    fs::create_symlink(target, file);
    EXPECT_EQ(logits(**open_engine(opening)), expected);
    EXPECT_FALSE(fs::is_symlink(file));
    EXPECT_EQ(read_file(file), whole);
    EXPECT_EQ(fs::exists(target), is_there);
  }
  EXPECT_EQ(read_file(elsewhere.path("precious")), "mine");
}

TEST(WeightsCache, DamagedFilesAreMadeAnew) {
  const ScratchFolder cache;
  const Opening opening{.model = kNetworks + "qwen3-tied", .cache = cache.root()};
  const auto expected = logits(**open_engine(opening));
  const fs::path file = only_file(cache.root());
  const std::string whole = read_file(file);
  const std::vector<std::string> damaged = {
      "", whole.substr(0, 20), whole.substr(0, whole.size() - 1), std::string(5000, 'x'),
      std::string(whole).replace(20, 6, "!!!!!!")};
  for (const std::string& bytes : damaged) {
    std::ofstream(file, std::ios::binary) << bytes;
    const auto engine = open_engine(opening);
    ASSERT_OK(engine);
    EXPECT_EQ(logits(**engine), expected);
    EXPECT_EQ(read_file(file), whole);
  }
}

// Size and time of the last change are as before, and so is every byte but a few in the middle.
TEST(WeightsCache, ModelsThatChangedUnderTheirOldTimeAreLoadedAnew) {
  const ScratchFolder scratch;
  const std::string model = copied_model(scratch);
  const Opening opening{.model = model, .cache = scratch.path("cache")};
  const auto before = logits(**open_engine(opening));
  const std::string weights = model + "/model.safetensors";
  const auto time = fs::last_write_time(weights);
  overwrite(weights, fs::file_size(weights) - 1000, std::string(16, '\x3c'));
  fs::last_write_time(weights, time);
  const auto expected = logits(**open_engine({.model = model}));
  EXPECT_NE(expected, before);
  EXPECT_EQ(logits(**open_engine(opening)), expected);
  // Another file in its place, of the same size and time.
  fs::copy(kNetworks + "qwen3-tied/model.safetensors", model + "/new");
  fs::last_write_time(model + "/new", time);
  fs::rename(model + "/new", weights);
  EXPECT_EQ(logits(**open_engine(opening)), before);
}

// A file with the right key whose matrices are of another model than the norms that are read.
TEST(WeightsCache, OtherWeightsUnderTheSameKeyAreRefused) {
  const ScratchFolder cache;
  const Opening opening{.model = kNetworks + "qwen3-tied", .cache = cache.root()};
  ASSERT_OK(open_engine(opening));
  const fs::path file = only_file(cache.root());
  std::string bytes = read_file(file);
  // The last numbers are the fingerprint and the checksum of all numbers before it.
  const std::size_t numbers = SafetensorsFile::open(file).value().tensors().back().bytes();
  bytes[bytes.size() - 16] = static_cast<char>(bytes[bytes.size() - 16] ^ 1);
  const std::uint64_t seal = checksum(
      std::string_view(bytes).substr(bytes.size() - numbers, numbers - sizeof(std::uint64_t)));
  std::memcpy(bytes.data() + bytes.size() - sizeof(seal), &seal, sizeof(seal));
  std::ofstream(file, std::ios::binary) << bytes;
  const Error refused = error_of(open_engine(opening));
  EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
  EXPECT_NE(refused.message().find(file.string()), std::string::npos) << refused.message();
}

// Written to by another program after it was opened: half of one model and half of the other.
TEST(WeightsCache, ModelsThatAreWrittenToWhileTheyLoadAreRefused) {
  const ScratchFolder scratch;
  const std::string model = copied_model(scratch);
  const std::string weights = model + "/model.safetensors";
  bool written = false;
  const auto engine =
      EngineImpl::open({.model_dir = model,
                        .num_threads = 2,
                        .session = {.context = 128},
                        .draft = {.source = "none"},
                        .weights_cache = scratch.path("cache"),
                        .on_progress = [&](std::uint64_t /*done*/, std::uint64_t /*total*/) {
                          if (!written)
                            overwrite(weights, fs::file_size(weights) - 1000, std::string(16, 'x'));
                          written = true;
                        }});
  const Error refused = error_of(engine);
  EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
  EXPECT_NE(refused.message().find(weights), std::string::npos) << refused.message();
  EXPECT_TRUE(files_in(scratch.path("cache")).empty());
}

// Also by a start that finds its own file whole, and of other models' files.
TEST(WeightsCache, RemovesWhatKilledWritersLeft) {
  const ScratchFolder cache;
  const Opening opening{.model = kNetworks + "qwen3-tied", .cache = cache.root()};
  ASSERT_OK(open_engine(opening));
  const std::string left[] = {
      cache.write(only_file(cache.root()).filename().string() + ".partial-abc123", "x"),
      cache.write("other.packed.partial-abc123", "x")};
  const std::string kept[] = {cache.write("session.partial-abc123", "x"),
                              cache.write("other.packed", "x")};
  const auto writer = AtomicFile::create(cache.path("third.packed")).value();
  const auto count = [&] {
    return std::distance(fs::directory_iterator(cache.root()), fs::directory_iterator());
  };
  EXPECT_EQ(count(), 6);
  ASSERT_OK(open_engine(opening));
  for (const std::string& path : left) EXPECT_FALSE(fs::exists(path)) << path;
  for (const std::string& path : kept) EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_EQ(count(), 4);
}

// A damaged file that cannot be replaced, and a folder that is none: the model has its weights.
TEST(WeightsCache, StartsWithoutAFileWhereNoneCanBeWritten) {
  const ScratchFolder scratch;
  const std::string model = kNetworks + "qwen3-tied";
  const auto plain = open_engine({.model = model}).value();
  ASSERT_OK(open_engine({.model = model, .cache = scratch.path("cache")}));
  const fs::path file = only_file(scratch.path("cache"));
  fs::remove(file);
  fs::create_directory(file);  // which no file replaces, whoever asks
  for (const std::string& cache : {scratch.path("cache"), scratch.write("file", "a file")}) {
    std::vector<std::string> notes;
    const auto engine = open_engine(
        {.model = model, .cache = cache, .on_note = [&](auto& note) { notes.push_back(note); }});
    ASSERT_OK(engine);
    EXPECT_EQ(logits(**engine), logits(*plain));
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_NE(notes.front().find(cache), std::string::npos) << notes.front();
  }
}

TEST(WeightsCache, SaysWhatIsWrongWithItsBackend) {
  const ScratchFolder scratch;
  const Error of_ref = error_of(open_engine(
      {.model = kNetworks + "qwen3-tied", .cache = scratch.path("cache"), .backend = "ref"}));
  EXPECT_EQ(of_ref.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(of_ref.message().find("a weights cache is for cpu"), std::string::npos);
}

}  // namespace
}  // namespace kakeya::test
