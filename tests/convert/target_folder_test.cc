// Where a converted model may be put: nothing that is not a model is ever removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/atomic_file.h"
#include "base/atomic_folder.h"
#include "convert/companion_files.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr auto kRefuse = AtomicFolder::Existing::kRefuse;
constexpr auto kReplace = AtomicFolder::Existing::kReplace;

// A folder with one file in it.
std::string filled(const ScratchFolder& folder, const std::string& name, const std::string& file) {
  fs::create_directories(folder.path(name));
  folder.write(name + "/" + file, "old");
  return folder.path(name);
}

std::string problem(const ScratchFolder& folder, const std::string& target, bool replace) {
  const auto status = check_target_folder(folder.path("source"), target, replace, 1);
  return status.has_value() ? "" : status.error().message();
}

TEST(TargetFolder, MayBeAbsentOrEmptyAndAModelOnlyIfItIsToBeReplaced) {
  const ScratchFolder folder;
  filled(folder, "source", "config.json");
  EXPECT_EQ(problem(folder, folder.path("absent"), false), "");
  EXPECT_EQ(problem(folder, folder.path("absent/"), false), "");
  fs::create_directory(folder.path("empty"));
  EXPECT_EQ(problem(folder, folder.path("empty"), false), "");
  const std::string model = filled(folder, "model", "config.json");
  fs::create_directory(model + "/drafter");
  EXPECT_THAT(problem(folder, model, false), HasSubstr("FolderOptions::replace replaces it"));
  EXPECT_EQ(problem(folder, model, true), "");
}

TEST(TargetFolder, IsNeverRemovedWhenItIsNoModel) {
  const ScratchFolder folder;
  filled(folder, "source", "config.json");
  const std::string letters = filled(folder, "letters", "love.txt");
  EXPECT_THAT(problem(folder, letters, true),
              HasSubstr("got one with love.txt, which is not removed"));
  fs::create_directory(folder.path("letters/drafter"));
  fs::remove(letters + "/love.txt");
  EXPECT_THAT(problem(folder, letters, true), HasSubstr("without config.json"));
  folder.write("letters/love.txt", "old");
  const std::string models = filled(folder, "models", "config.json");
  fs::create_directory(models + "/other");
  EXPECT_THAT(problem(folder, models, true), HasSubstr("got one with other/"));
  EXPECT_THAT(problem(folder, letters + "/love.txt", true), HasSubstr("got a file"));
  // A model, with what nobody here wrote beside it.
  const std::string mixed = filled(folder, "mixed", "config.json");
  for (const char* name : {"thesis.txt", "lora.safetensors", "notes.json"}) {
    folder.write(std::string("mixed/") + name, "mine");
    EXPECT_THAT(problem(folder, mixed, true), HasSubstr(name));
    fs::remove(mixed + "/" + name);
  }
  // It would be written again.
  folder.write("source/notes.json", "1");
  folder.write("mixed/notes.json", "1");
  EXPECT_EQ(problem(folder, mixed, true), "");
}

TEST(TargetFolder, NeitherHoldsTheSourceNorLiesInIt) {
  const ScratchFolder folder;
  filled(folder, "source", "config.json");
  fs::create_directory_symlink(folder.path("source"), folder.path("link"));
  for (const std::string& target : {folder.path("source"), folder.path("source/out"), folder.root(),
                                    folder.path("source/../source/"), folder.path("link/out")}) {
    EXPECT_THAT(problem(folder, target, true), HasSubstr("neither holds the source")) << target;
  }
  EXPECT_EQ(problem(folder, folder.path("source-4bit"), false), "");
}

TEST(TargetFolder, NeedsRoomAndAParent) {
  const ScratchFolder folder;
  filled(folder, "source", "config.json");
  const auto full =
      check_target_folder(folder.path("source"), folder.path("out"), false, std::uint64_t{1} << 60);
  ASSERT_FALSE(full.has_value());
  EXPECT_THAT(full.error().message(), HasSubstr("of free space, got"));
  EXPECT_THAT(problem(folder, folder.path("no/such/out"), false), HasSubstr("no/such"));
}

TEST(AtomicFolderTest, AppearsWholeOrNotAtAll) {
  const ScratchFolder folder;
  const std::string target = folder.path("out");
  {
    auto abandoned = AtomicFolder::create(target, kRefuse);
    ASSERT_TRUE(abandoned.has_value());
    filled(folder, fs::path(abandoned->path()).filename().string() + "/deep", "x");
  }
  EXPECT_TRUE(fs::is_empty(folder.root()));
  auto made = AtomicFolder::create(target + "/", kRefuse);
  ASSERT_TRUE(made.has_value());
  EXPECT_FALSE(fs::exists(target));
  filled(folder, fs::path(made->path()).filename().string(), "x");
  ASSERT_TRUE(made->commit().has_value());
  EXPECT_TRUE(fs::exists(target + "/x"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.root()), {}), 1);
}

TEST(AtomicFolderTest, MakesTheFoldersAboveIt) {
  const ScratchFolder folder;
  auto made = AtomicFolder::create(folder.path("new") + "/deep/out", kRefuse);
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE(made->commit().has_value());
  EXPECT_TRUE(fs::is_directory(folder.path("new") + "/deep/out"));
}

TEST(AtomicFolderTest, ReplacesAFolderOnlyWhenAskedTo) {
  const ScratchFolder folder;
  const std::string target = filled(folder, "out", "old");
  const auto refused = AtomicFolder::create(target, kRefuse);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kFailedPrecondition);
  auto made = AtomicFolder::create(target, kReplace);
  ASSERT_TRUE(made.has_value());
  filled(folder, fs::path(made->path()).filename().string(), "new");
  EXPECT_TRUE(fs::exists(target + "/old"));
  ASSERT_TRUE(made->commit().has_value());
  EXPECT_TRUE(fs::exists(target + "/new"));
  EXPECT_FALSE(fs::exists(target + "/old"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.root()), {}), 1);
}

// Somebody fills the target while the folder is made.
TEST(AtomicFolderTest, DoesNotReplaceWhatAppearsMeanwhile) {
  const ScratchFolder folder;
  auto made = AtomicFolder::create(folder.path("out"), kRefuse);
  ASSERT_TRUE(made.has_value());
  filled(folder, "out", "theirs");
  EXPECT_EQ(made->commit().error().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(fs::exists(folder.path("out/theirs")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.root()), {}), 1);
}

TEST(AtomicFileTest, SharedFilesHaveTheModeThatTheUmaskAllows) {
  const ScratchFolder folder;
  const mode_t before = ::umask(0027);
  auto file = AtomicFile::create(folder.path("shared"), FileAccess::kUmask);
  auto own = AtomicFile::create(folder.path("own"));
  ::umask(before);
  ASSERT_TRUE(file.has_value() && own.has_value());
  ASSERT_TRUE(file->commit().has_value() && own->commit().has_value());
  struct stat info = {};
  ASSERT_EQ(::stat(folder.path("shared").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0640U);
  ASSERT_EQ(::stat(folder.path("own").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

}  // namespace
}  // namespace kakeya
