// Models that are split into several GGUF files, and tensors that are not what a model wants.
#include "formats/gguf_checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "formats/gguf_model_scratch.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kDense = std::string(KAKEYA_TEST_DATA) + "/networks/gemma4-dense";

std::string part_name(int part, int count) {
  return fmt::format("m-{:05}-of-{:05}.gguf", part + 1, count);
}

// Writes the tensors in `count` parts in turn; the first has the metadata.
void write_parts(const ScratchFolder& folder, const GgufContent& content, int count) {
  for (int part = 0; part < count; ++part) {
    GgufContent own;
    if (part == 0) own.metadata = content.metadata;
    own.set("split.no", static_cast<std::uint16_t>(part));
    own.set("split.count", static_cast<std::uint16_t>(count));
    own.set("split.tensors.count", static_cast<std::int32_t>(content.tensors.size()));
    for (std::size_t i = static_cast<std::size_t>(part); i < content.tensors.size();
         i += static_cast<std::size_t>(count)) {
      own.tensors.push_back(content.tensors[i]);
    }
    own.write(folder.path(part_name(part, count)));
  }
}

std::string message_of_line(const Result<GgufCheckpoint>& refused) {
  const std::string message = message_of(refused);
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  return message;
}

TEST(GgufCheckpoint, FindsTheOtherPartsOfTheFirst) {
  const ScratchFolder folder;
  const GgufContent content = model_as_gguf(kDense);
  write_parts(folder, content, 3);
  const auto checkpoint = GgufCheckpoint::open(folder.path(part_name(0, 3)));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  EXPECT_EQ(checkpoint->files().size(), 3U);
  for (const GgufTensorSource& tensor : content.tensors) {
    EXPECT_NE(checkpoint->find(tensor.name), nullptr) << tensor.name;
  }
  const auto config = load_model_config(folder.path(part_name(0, 3)));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  const auto resolved = resolve_tensors(*checkpoint, expected_tensors(*config));
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
  EXPECT_EQ(resolved->size(), content.tensors.size() - 1);  // without the frequency factors
}

TEST(GgufCheckpoint, MissingAndWrongPartsAreRefused) {
  const ScratchFolder folder;
  write_parts(folder, model_as_gguf(kDense), 3);
  const std::string first = folder.path(part_name(0, 3));
  EXPECT_THAT(
      message_of_line(GgufCheckpoint::open(folder.path(part_name(1, 3)))),
      AllOf(HasSubstr("open the first part"), HasSubstr("expected part 1 of 3, got part 2")));
  const std::string third = folder.path(part_name(2, 3));
  std::filesystem::rename(third, folder.path("away"));
  const auto missing = GgufCheckpoint::open(first);
  EXPECT_EQ(code_of(missing), StatusCode::kNotFound);
  EXPECT_THAT(message_of_line(missing),
              AllOf(HasSubstr("part 3 of 3"), HasSubstr(part_name(2, 3))));
  std::filesystem::copy_file(folder.path(part_name(1, 3)), third);
  EXPECT_THAT(message_of_line(GgufCheckpoint::open(first)),
              HasSubstr("expected part 3 of 3, got part 2 of 3"));
  std::filesystem::rename(first, folder.path("renamed.gguf"));
  EXPECT_THAT(message_of_line(GgufCheckpoint::open(folder.path("renamed.gguf"))),
              HasSubstr("expected a name that ends in -00001-of-00003.gguf"));
}

TEST(GgufCheckpoint, TensorsAreThereOnceAndAllOfThem) {
  const ScratchFolder folder;
  GgufContent content = model_as_gguf(kDense);
  const GgufTensorSource copy = content.tensors[0];
  GgufContent twice = content;
  twice.tensors.insert(twice.tensors.begin() + 1, copy);
  write_parts(folder, twice, 2);
  EXPECT_THAT(message_of_line(GgufCheckpoint::open(folder.path(part_name(0, 2)))),
              HasSubstr("is in another part as well"));
  write_parts(folder, content, 2);
  GgufContent second;
  second.set("split.no", std::uint16_t{1});
  second.set("split.count", std::uint16_t{2});
  second.tensors.push_back(content.tensors[1]);
  second.write(folder.path(part_name(1, 2)));
  EXPECT_EQ(code_of(GgufCheckpoint::open(folder.path(part_name(0, 2)))), StatusCode::kDataLoss);
}

TEST(GgufPath, IsToldByNameOrContent) {
  const ScratchFolder folder;
  EXPECT_TRUE(is_gguf_path("nowhere.gguf"));
  EXPECT_FALSE(is_gguf_path(folder.root()));
  EXPECT_FALSE(is_gguf_path("nowhere"));
  EXPECT_TRUE(is_gguf_path(folder.write("model", "GGUF...")));
  EXPECT_FALSE(is_gguf_path(folder.write("other", "GGU")));
  std::filesystem::create_directory(folder.path("d.gguf"));
  EXPECT_FALSE(is_gguf_path(folder.path("d.gguf")));
}

// The refusal of the tensors of a changed network.
template <typename Change>
std::string problems(Change change) {
  const ScratchFolder folder;
  GgufContent content = model_as_gguf(kDense);
  const auto config = load_model_config(kDense).value();
  change(content);
  const auto checkpoint = GgufCheckpoint::open(content.write(folder.path("m.gguf")));
  EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  return error_naming("m.gguf", resolve_tensors(*checkpoint, expected_tensors(config))).message();
}

TEST(GgufTensors, ThatDoNotFitAreListedByTheirNames) {
  EXPECT_THAT(problems([](GgufContent& it) { it.erase_tensor("blk.1.attn_q.weight"); }),
              HasSubstr("1 tensor does not fit the configuration: missing blk.1.attn_q.weight"));
  EXPECT_THAT(problems([](GgufContent& it) { it.add_floats("blk.0.attn_q.scale", {1.0F}); }),
              HasSubstr("unexpected blk.0.attn_q.scale [1]"));
  EXPECT_THAT(problems([](GgufContent& it) { it.add_floats("blk.9.attn_norm.weight", {1.0F}); }),
              HasSubstr("unexpected blk.9.attn_norm.weight [1]"));
  EXPECT_THAT(problems([](GgufContent& it) {
                it.tensor("blk.1.attn_q.weight").shape = {32, 128};
              }),
              HasSubstr("blk.1.attn_q.weight in "));
  EXPECT_THAT(problems([](GgufContent& it) {
                it.tensor("output_norm.weight").shape = {32};
                it.tensor("output_norm.weight").encoding = DType::kI32;
              }),
              HasSubstr("output_norm.weight in "));
  EXPECT_THAT(problems([](GgufContent& it) {
                it.erase_tensor("output_norm.weight");
                it.add_tensor("output_norm.weight", {64}, DType::kI32, std::vector<std::byte>(256));
              }),
              HasSubstr("expected F32, F16, BF16 or blocks, got I32"));
}

}  // namespace
}  // namespace kakeya
