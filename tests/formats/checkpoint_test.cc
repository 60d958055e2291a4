#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "formats/safetensors.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::HasSubstr;

const std::string kShardA = "model-00001-of-00002.safetensors";
const std::string kShardB = "model-00002-of-00002.safetensors";

std::string shard(const std::string& tensor) {
  return safetensors_bytes("{\"" + tensor + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                           "data");
}

// A folder of two shards, tensor "a" in the first and "b" in the second, and this weight map.
void write_sharded(const ScratchFolder& folder, const std::string& weight_map) {
  folder.write(kShardA, shard("a"));
  folder.write(kShardB, shard("b"));
  folder.write("model.safetensors.index.json",
               R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}");
}

// The weight map {tensor: file, ...}; names go into the JSON as they are.
std::string map_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::vector<std::string> fields;
  for (const auto& [tensor, file] : entries) {
    fields.push_back(fmt::format(R"("{}":"{}")", tensor, file));
  }
  return fmt::format("{{{}}}", fmt::join(fields, ","));
}

std::string index_refusal(const std::string& weight_map) {
  const ScratchFolder folder;
  write_sharded(folder, weight_map);
  const auto checkpoint = Checkpoint::open(folder.root());
  EXPECT_FALSE(checkpoint.has_value());
  return checkpoint ? "" : checkpoint.error().message();
}

TEST(Checkpoint, OpensAFolderWithOneFileOrTheFileItself) {
  const ScratchFolder folder;
  folder.write("model.safetensors", shard("a"));
  for (const std::string& path : {folder.root(), folder.path("model.safetensors")}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
    EXPECT_NE(checkpoint->find("a"), nullptr);
    EXPECT_EQ(checkpoint->file_of("a"), folder.path("model.safetensors"));
    EXPECT_EQ(checkpoint->total_bytes(), 4U);
  }
}

TEST(Checkpoint, FindsTensorsAcrossShardsAfterAMove) {
  const ScratchFolder folder;
  write_sharded(folder, map_of({{"a", kShardA}, {"b", kShardB}}));
  auto opened = Checkpoint::open(folder.root());
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const Checkpoint checkpoint = std::move(*opened);
  EXPECT_EQ(checkpoint.files().size(), 2U);
  EXPECT_EQ(checkpoint.find("b")->name, "b");
  EXPECT_EQ(checkpoint.file_of("b"), folder.path(kShardB));
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  EXPECT_EQ(checkpoint.file_of("c"), "");
  EXPECT_EQ(checkpoint.total_bytes(), 8U);
}

TEST(Checkpoint, RefusesIndexEntriesThatLeaveTheFolder) {
  for (const std::string& name :
       {"../" + kShardA, std::string("/etc/passwd"), std::string(".."),
        std::string("a\\\\b.safetensors"), std::string(""), std::string("x\\u0000.safetensors"),
        std::string("weights.bin")}) {
    EXPECT_THAT(index_refusal(map_of({{"a", name}})), HasSubstr("same folder")) << name;
  }
  EXPECT_THAT(index_refusal(R"({"a":3})"), HasSubstr("weight_map.a: expected the name"));
  EXPECT_THAT(index_refusal("[]"), HasSubstr("weight_map: expected an object"));
}

TEST(Checkpoint, RefusesAnIndexThatDisagreesWithTheShards) {
  EXPECT_THAT(index_refusal(map_of({{"a", kShardB}, {"b", kShardA}})),
              HasSubstr("tensor a should be in " + kShardB + ", but it is in another"));
  EXPECT_THAT(index_refusal(map_of({{"a", kShardA}, {"c", kShardB}})),
              HasSubstr("tensor c should be in " + kShardB + ", but it is in none"));
  const std::string third = index_refusal(map_of({{"a", kShardA}, {"c", "model-3.safetensors"}}));
  EXPECT_THAT(third, HasSubstr("model-3.safetensors"));
}

// Text-only copies of multimodal models keep the index of the whole.
TEST(Checkpoint, NeedsNoVisionTensorThatTheIndexNames) {
  const std::string vision = "model.vision_tower.patch_embedder.weight";
  for (const std::string& file : {kShardA, std::string("model-3.safetensors")}) {
    const ScratchFolder folder;
    write_sharded(folder, map_of({{"a", kShardA}, {"b", kShardB}, {vision, file}}));
    const auto checkpoint = Checkpoint::open(folder.root());
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
    EXPECT_EQ(checkpoint->files().size(), 2U);
    EXPECT_EQ(checkpoint->find(vision), nullptr);
  }
}

TEST(Checkpoint, SaysThatAFileIsAGitLfsPointer) {
  const ScratchFolder folder;
  folder.write("model.safetensors",
               "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5000\n");
  EXPECT_THAT(error_naming("model.safetensors", Checkpoint::open(folder.root())).message(),
              HasSubstr("expected the file itself, got a Git LFS pointer of 69 bytes"));
}

TEST(Checkpoint, RefusesATensorThatTheIndexDoesNotList) {
  const ScratchFolder folder;
  folder.write(kShardA,
               safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                 "12"));
  folder.write("model.safetensors.index.json",
               R"({"weight_map":)" + map_of({{"a", kShardA}}) + "}");
  EXPECT_THAT(message_of(Checkpoint::open(folder.root())),
              HasSubstr("tensor extra of " + folder.path(kShardA) + " is not in the index"));
}

TEST(Checkpoint, RefusesATensorThatTwoShardsHold) {
  const ScratchFolder folder;
  folder.write(kShardA, shard("a"));
  folder.write(kShardB, shard("a"));
  folder.write("model.safetensors.index.json",
               R"({"weight_map":)" + map_of({{"a", kShardA}, {"b", kShardB}}) + "}");
  EXPECT_THAT(message_of(Checkpoint::open(folder.root())), HasSubstr("tensor a is both in"));
}

TEST(Checkpoint, SaysWhatAFolderWithoutWeightsLacks) {
  const ScratchFolder folder;
  const auto checkpoint = Checkpoint::open(folder.root());
  ASSERT_FALSE(checkpoint.has_value());
  EXPECT_EQ(checkpoint.error().code(), StatusCode::kNotFound);
  EXPECT_THAT(checkpoint.error().message(), HasSubstr("model.safetensors.index.json, got neither"));
}

}  // namespace
}  // namespace kakeya
