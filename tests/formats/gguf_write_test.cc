// Writing of GGUF files, against the bytes of gguf-py (tools/make_quantized_goldens.py).
#include "formats/gguf_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/gguf_scratch.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::HasSubstr;

// Gives the bytes in pieces of this size.
GgufTensorSource source(std::string name,
                        Shape shape,
                        GgufEncoding encoding,
                        std::span<const std::byte> bytes,
                        std::size_t piece = 7) {
  return {std::move(name), std::move(shape), encoding, [=](const GgufSink& sink) -> Status {
            for (std::size_t i = 0; i < bytes.size(); i += piece) {
              if (auto status = sink(bytes.subspan(i, std::min(piece, bytes.size() - i)));
                  !status) {
                return status;
              }
            }
            return {};
          }};
}

const std::string_view kSixteenBytes = "0123456789abcdef";

std::size_t num_files(const ScratchFolder& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.root())) {
    ++count;
  }
  return count;
}

TEST(WriteGguf, WritesTheBytesOfTheDefiningPackage) {
  const std::string path = std::string(KAKEYA_TEST_DATA) + "/quantized/flat.gguf";
  const auto golden = GgufFile::open(path);
  ASSERT_TRUE(golden.has_value()) << golden.error().message();
  for (const std::size_t piece : {1, 7, 1 << 20}) {
    std::vector<GgufTensorSource> tensors;
    for (const GgufTensor& tensor : golden->tensors()) {
      tensors.push_back(
          source(std::string(tensor.name), tensor.shape, tensor.encoding, tensor.data, piece));
    }
    const ScratchFolder folder;
    const Status status = write_gguf(folder.path("t.gguf"), golden_metadata(), tensors);
    ASSERT_TRUE(status.has_value()) << status.error().message();
    EXPECT_EQ(read_file(folder.path("t.gguf")), read_file(path));
    EXPECT_EQ(num_files(folder), 1U);
  }
}

TEST(WriteGguf, AlignsToThirtyTwoBytesWithoutAnotherWord) {
  const ScratchFolder folder;
  const std::vector<GgufTensorSource> tensors = {
      source("a", {1}, DType::kF32, bytes_of(kSixteenBytes).first(4)),
      source("empty", {0, 3}, DType::kI8, {}),
      source("b", {2, 2}, DType::kF32, bytes_of(kSixteenBytes)),
  };
  ASSERT_TRUE(write_gguf(folder.path("t.gguf"), {}, tensors).has_value());
  const auto file = GgufFile::open(folder.path("t.gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->alignment(), 32U);
  EXPECT_EQ(file->find("empty")->shape, (Shape{0, 3}));
  EXPECT_EQ(file->find("b")->data.data() - file->find("a")->data.data(), 32);
  EXPECT_EQ(std::memcmp(file->find("b")->data.data(), kSixteenBytes.data(), 16), 0);
  EXPECT_EQ(read_file(folder.path("t.gguf")).size() % 32, 0U);
}

TEST(WriteGguf, WritesEmptyArraysAndNoTensors) {
  const ScratchFolder folder;
  const std::vector<GgufMetadata> metadata = {{"none", std::vector<std::string>{}}};
  ASSERT_TRUE(write_gguf(folder.path("t.gguf"), metadata, {}).has_value());
  const auto file = GgufFile::open(folder.path("t.gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_TRUE(file->texts("none").value().empty());
  EXPECT_TRUE(file->tensors().empty());
}

// The refusal of a write that must fail. An older file stays as it was, and nothing else is left.
std::string write_refusal(std::span<const GgufMetadata> metadata,
                          std::span<const GgufTensorSource> tensors) {
  const ScratchFolder folder;
  const std::string path = folder.write("t.gguf", "old");
  const Status status = write_gguf(path, metadata, tensors);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(num_files(folder), 1U);
  return error_naming("t.gguf", status).message();
}

std::string write_refusal(GgufTensorSource tensor) {
  return write_refusal({}, std::vector<GgufTensorSource>{std::move(tensor)});
}

TEST(WriteGguf, RefusesSourcesThatGiveTooFewOrTooManyBytes) {
  const auto sixteen = bytes_of(kSixteenBytes);
  EXPECT_THAT(write_refusal(source("a\n", {5}, DType::kF32, sixteen)),
              HasSubstr(R"(tensor a\x0a: expected 20 bytes of data, got 16)"));
  EXPECT_THAT(write_refusal(source("a", {3}, DType::kF32, sixteen)),
              HasSubstr("tensor a: expected 12 bytes of data, got at least 14"));
  EXPECT_THAT(write_refusal(source("a", {0}, DType::kF32, sixteen)), HasSubstr("expected 0 bytes"));
}

TEST(WriteGguf, PassesOnWhatASourceSays) {
  GgufTensorSource broken = source("a", {4}, DType::kF32, bytes_of(kSixteenBytes));
  broken.write = [](const GgufSink& sink) -> Status {
    if (auto status = sink(bytes_of(kSixteenBytes)); !status) return status;
    return error(StatusCode::kDataLoss, "the source is damaged");
  };
  EXPECT_THAT(write_refusal(broken), HasSubstr("tensor a: the source is damaged"));
}

TEST(WriteGguf, RefusesWhatTheFormatCannotHold) {
  const auto sixteen = bytes_of(kSixteenBytes);
  EXPECT_THAT(write_refusal(source("a", {16}, DType::kU8, sixteen)),
              HasSubstr("type U8 is not one of GGUF's: F32, F16"));
  EXPECT_THAT(write_refusal(source("a", {16}, QuantizedFormat::kQ80, sixteen)),
              HasSubstr("whole blocks of 32, got 16"));
  EXPECT_THAT(write_refusal(source("a", {1, 1, 1, 1, 4}, DType::kF32, sixteen)),
              HasSubstr("at most 4 axes"));
  EXPECT_THAT(write_refusal(source("a", {-4}, DType::kF32, sixteen)), HasSubstr("negative"));
  EXPECT_THAT(write_refusal(source("", {4}, DType::kF32, sixteen)),
              HasSubstr("tensor name: expected"));
  const GgufTensorSource same = source("a", {4}, DType::kF32, sixteen);
  EXPECT_THAT(write_refusal({}, std::vector<GgufTensorSource>{same, same}),
              HasSubstr("tensor name a: expected it once"));
  const std::int64_t huge = std::int64_t{1} << 61;
  const std::vector<GgufTensorSource> two = {source("a", {huge}, DType::kI8, {}),
                                             source("b", {huge, 2}, DType::kI8, {})};
  EXPECT_THAT(write_refusal({}, two), HasSubstr("tensor b: expected at most"));
}

TEST(WriteGguf, RefusesWrongMetadata) {
  const auto metadata = [](std::vector<GgufMetadata> entries) {
    return write_refusal(entries, {});
  };
  EXPECT_THAT(metadata({{"k", true}, {"k", 1.0F}}), HasSubstr("key k: expected it once"));
  EXPECT_THAT(metadata({{"\xff", true}}), HasSubstr("key: expected 1 to"));
  EXPECT_THAT(metadata({{"general.alignment", std::uint32_t{48}}}),
              HasSubstr("general.alignment: expected a power of two up to 1073741824, got 48"));
  EXPECT_THAT(metadata({{"general.alignment", std::uint64_t{64}}}), HasSubstr("expected a uint32"));
}

TEST(WriteGguf, SaysThatTheFolderIsMissing) {
  const ScratchFolder folder;
  EXPECT_EQ(code_of(write_gguf(folder.path("absent/t.gguf"), {}, {})), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kakeya
