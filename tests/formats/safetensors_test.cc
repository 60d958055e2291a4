#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::HasSubstr;

const std::string kTwoTensors = R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[3,11]}})";

// The message for a file of these bytes, which must be refused.
Error safetensors_refusal(const std::string& bytes) {
  const ScratchFolder folder;
  return error_naming("bad.safetensors",
                      SafetensorsFile::open(folder.write("bad.safetensors", bytes)));
}

std::string one_tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return R"({"t":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) +
         R"(,"data_offsets":)" + std::string(offsets) + "}}";
}

TEST(SafetensorsFile, ReadsTensorsInFileOrderWithoutCopying) {
  const ScratchFolder folder;
  const std::string header = kTwoTensors.substr(0, kTwoTensors.size() - 1) +
                             R"(,"__metadata__":{"format":"pt"},"z":{"dtype":"BF16","shape":[0,7],)"
                             R"("data_offsets":[11,11]}})";
  auto opened = SafetensorsFile::open(
      folder.write("t.safetensors", safetensors_bytes(header, "xyz01234567")));
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const SafetensorsFile file = std::move(*opened);
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.tensors()[1].name, "a");
  EXPECT_EQ(file.tensors()[1].dtype, DType::kF32);
  EXPECT_EQ(file.tensors()[1].shape, (Shape{1, 2}));
  EXPECT_EQ(std::memcmp(file.tensors()[1].data, "01234567", 8), 0);
  EXPECT_EQ(file.find("z")->shape, (Shape{0, 7}));
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(SafetensorsFile, ReadsMetadataThatIsNullAsNone) {
  const ScratchFolder folder;
  const auto file = SafetensorsFile::open(
      folder.write("t.safetensors", safetensors_bytes(R"({"__metadata__":null})", "")));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_TRUE(file->metadata().empty());
}

TEST(SafetensorsFile, ReadsAScalarAndAnEmptyFile) {
  const ScratchFolder folder;
  const auto scalar = SafetensorsFile::open(folder.write(
      "scalar.safetensors", safetensors_bytes(one_tensor("F16", "[]", "[0,2]"), "ab")));
  ASSERT_TRUE(scalar.has_value()) << scalar.error().message();
  EXPECT_TRUE(scalar->find("t")->shape.empty());
  const auto empty =
      SafetensorsFile::open(folder.write("empty.safetensors", safetensors_bytes("{}", "")));
  ASSERT_TRUE(empty.has_value()) << empty.error().message();
  EXPECT_TRUE(empty->tensors().empty());
}

TEST(SafetensorsFile, RefusesATruncatedFile) {
  EXPECT_THAT(safetensors_refusal("").message(), HasSubstr("at least 8 bytes, got 0"));
  EXPECT_THAT(safetensors_refusal("1234567").message(), HasSubstr("at least 8 bytes, got 7"));
  const std::string whole = safetensors_bytes(kTwoTensors, "xyz01234567");
  EXPECT_EQ(safetensors_refusal(whole.substr(0, 20)).code(), StatusCode::kDataLoss);
  const Error short_data = safetensors_refusal(whole.substr(0, whole.size() - 1));
  EXPECT_EQ(short_data.code(), StatusCode::kDataLoss);
  EXPECT_THAT(short_data.message(),
              HasSubstr("tensor a: data_offsets end at 11, but the file holds 10"));
}

TEST(SafetensorsFile, RefusesEveryPrefixOfAFile) {
  const std::string whole = safetensors_bytes(kTwoTensors, "xyz01234567");
  for (std::size_t size = 0; size < whole.size(); ++size)
    safetensors_refusal(whole.substr(0, size));
}

TEST(SafetensorsFile, RefusesAHeaderLongerThanTheLimitOrTheFile) {
  const auto with_length = [](std::uint64_t length) {
    return safetensors_refusal(safetensors_bytes("{}", "", length)).message();
  };
  EXPECT_THAT(with_length(3), HasSubstr("header of 3 bytes, but the file has only 2"));
  EXPECT_THAT(with_length(100'000'001), HasSubstr("at most 100000000 bytes, got 100000001"));
  EXPECT_THAT(with_length(std::numeric_limits<std::uint64_t>::max()),
              HasSubstr("expected a safetensors file"));
}

TEST(SafetensorsFile, RefusesOverlapsHolesAndTrailingBytes) {
  const auto two = [](std::string_view second, std::string_view data) {
    return safetensors_refusal(
               safetensors_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                 R"("b":{"dtype":"U8","shape":[4],"data_offsets":)" +
                                     std::string(second) + "}}",
                                 data))
        .message();
  };
  EXPECT_THAT(two("[3,7]", "1234567"),
              HasSubstr("tensor b begins at byte 3, before the end of a at 4"));
  EXPECT_THAT(two("[0,4]", "1234"), HasSubstr("before the end of a"));
  EXPECT_THAT(two("[5,9]", "123456789"), HasSubstr("leaving a hole after a at 4"));
  EXPECT_THAT(two("[4,8]", "12345678+"), HasSubstr("1 trailing bytes"));
  EXPECT_THAT(safetensors_refusal(safetensors_bytes("{}", "1")).message(),
              HasSubstr("1 trailing bytes"));
}

TEST(SafetensorsFile, RefusesShapesThatDoNotMatchTheBytes) {
  const auto with = [](std::string_view shape, std::string_view offsets = "[0,4]") {
    return safetensors_refusal(safetensors_bytes(one_tensor("F32", shape, offsets), "1234"))
        .message();
  };
  EXPECT_THAT(with("[2]"), HasSubstr("shape [2] of F32 takes 8 bytes, but data_offsets span 4"));
  EXPECT_THAT(with("[-1]"), HasSubstr("shape: expected an integer from 0"));
  EXPECT_THAT(with("[4294967296,4294967296]"), HasSubstr("overflows"));
  EXPECT_THAT(with("[9223372036854775807]"), HasSubstr("overflows"));
  EXPECT_THAT(with("[9223372036854775807,2,0]"), HasSubstr("overflows"));
  EXPECT_THAT(with("[18446744073709551616]"), HasSubstr("JSON"));
  EXPECT_THAT(with("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
              HasSubstr("at most 32 axes"));
  EXPECT_THAT(with("4"), HasSubstr("shape: expected a list"));
  EXPECT_THAT(with("[1]", "[4,0]"), HasSubstr("[begin, end]"));
  EXPECT_THAT(with("[1]", "[0]"), HasSubstr("[begin, end]"));
  EXPECT_THAT(with("[1]", "[-4,0]"), HasSubstr("data_offsets"));
  EXPECT_THAT(with("[1]", "[9223372036854775800,9223372036854775804]"), HasSubstr("data_offsets"));
}

TEST(SafetensorsFile, RefusesHeadersThatAreNotWhatTheFormatSays) {
  const auto message = [](std::string_view header) {
    return safetensors_refusal(safetensors_bytes(header, "1234")).message();
  };
  EXPECT_THAT(message("[1]"), HasSubstr("expected a JSON object, got a list"));
  EXPECT_THAT(message("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("{\"\xc3\x28\":1}"), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(message(R"({"t":1})"), HasSubstr("tensor t: expected an object, got 1"));
  EXPECT_THAT(message(R"({"t":{"dtype":"F32"}})"), HasSubstr("shape: expected a list"));
  EXPECT_THAT(message(R"({"__metadata__":{"n":1}})"),
              HasSubstr("__metadata__.n: expected a string"));
  EXPECT_THAT(message(std::string(1000, '[') + std::string(1000, ']')),
              HasSubstr("deeper than 64"));
  const std::string entry = R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(message("{" + entry + "," + entry + "}"), HasSubstr("duplicate key \"t\""));
}

TEST(SafetensorsFile, SaysWhichDtypeIsNotSupported) {
  const Error error =
      safetensors_refusal(safetensors_bytes(one_tensor("F8_E4M3", "[4]", "[0,4]"), "1234"));
  EXPECT_EQ(error.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(error.message(), HasSubstr("tensor t: dtype \"F8_E4M3\" is not supported"));
}

TEST(SafetensorsFile, PrintsHostileNamesHarmlessly) {
  const std::string name = "\\u001b[2J\\n" + std::string(5000, 'x');
  const Error error = safetensors_refusal(safetensors_bytes("{\"" + name + "\":1}", ""));
  EXPECT_THAT(error.message(), HasSubstr("tensor \\x1b[2J\\x0axxx"));
  EXPECT_LT(error.message().size(), 400U);
}

TEST(SafetensorsFile, SaysThatAFileIsMissingOrIsAFolder) {
  const ScratchFolder folder;
  EXPECT_EQ(code_of(SafetensorsFile::open(folder.path("none"))), StatusCode::kNotFound);
  EXPECT_EQ(code_of(SafetensorsFile::open(folder.root())), StatusCode::kInvalidArgument);
}

TensorView view_of(const std::vector<float>& values, Shape shape, std::string name) {
  return {reinterpret_cast<const std::byte*>(values.data()), std::move(shape), DType::kF32,
          std::move(name)};
}

TEST(WriteSafetensors, GivesBackWhatWasWrittenAndTheSameBytesEachTime) {
  const ScratchFolder folder;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<TensorView> tensors = {view_of(values, {2, 3}, "second \"quoted\" \n name"),
                                           view_of(values, {1}, "first"),
                                           view_of(values, {0}, "empty")};
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"note", "a\\b\xc3\xa9"}};
  const std::string path = folder.path("w.safetensors");
  ASSERT_TRUE(write_safetensors(path, tensors, metadata).has_value());
  ASSERT_TRUE(write_safetensors(folder.path("again"), tensors, metadata).has_value());
  EXPECT_EQ(read_file(path), read_file(folder.path("again")));

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  ASSERT_EQ(file->tensors().size(), 3U);
  EXPECT_EQ(file->tensors()[0].name, tensors[0].name);
  EXPECT_EQ(file->tensors()[0].shape, (Shape{2, 3}));
  EXPECT_EQ(to_f32(file->tensors()[0]).value(), values);
  EXPECT_EQ(file->metadata(), metadata);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file->tensors()[0].data) % 8, 0U);
}

TEST(WriteSafetensors, LeavesTheOldFileAndNoPartialOneWhenItFails) {
  const ScratchFolder folder;
  const std::vector<float> values = {1};
  const std::string path = folder.write("kept.safetensors", "old");
  const std::vector<TensorView> twice = {view_of(values, {1}, "a"), view_of(values, {1}, "a")};
  EXPECT_THAT(message_of(write_safetensors(path, twice, {})), HasSubstr("used twice"));
  const std::vector<TensorView> bad = {view_of(values, {1}, "\xff")};
  EXPECT_THAT(message_of(write_safetensors(path, bad, {})), HasSubstr("UTF-8"));
  EXPECT_EQ(read_file(path), "old");
  const std::vector<TensorView> good = {view_of(values, {1}, "a")};
  const Status blocked = write_safetensors(folder.path("no/such/folder"), good, {});
  EXPECT_EQ(code_of(blocked), StatusCode::kUnavailable);
  ASSERT_TRUE(write_safetensors(path, good, {}).has_value());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.root()), {}), 1);
}

TEST(WriteSafetensors, RemovesThePartialFileWhenItCannotTakeItsPlace) {
  const ScratchFolder folder;
  const std::vector<float> values = {1};
  std::filesystem::create_directory(folder.path("taken"));
  const std::vector<TensorView> tensors = {view_of(values, {1}, "a")};
  EXPECT_EQ(code_of(write_safetensors(folder.path("taken"), tensors, {})),
            StatusCode::kUnavailable);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.root()), {}), 1);
}

// Puts `bad` into an otherwise finite tensor at every position that matters to a blocked loop.
template <typename Element>
void expect_found(DType dtype, Element fine, Element bad) {
  for (const std::size_t count : {1U, 2047U, 2048U, 2049U, 5000U}) {
    for (const std::size_t index : {std::size_t{0}, count / 2, count - 1}) {
      std::vector<Element> values(count, fine);
      const TensorView view = {reinterpret_cast<const std::byte*>(values.data()),
                               {static_cast<std::int64_t>(count)},
                               dtype,
                               "w"};
      ASSERT_TRUE(check_finite(view).has_value());
      values[index] = bad;
      const Status status = check_finite(view);
      ASSERT_FALSE(status.has_value());
      EXPECT_EQ(status.error().code(), StatusCode::kDataLoss);
      EXPECT_THAT(status.error().message(),
                  HasSubstr("tensor w: element " + std::to_string(index) + " of"));
    }
  }
}

TEST(CheckFinite, FindsNanAndInfinityInEveryFloatingPointType) {
  const float infinity = std::numeric_limits<float>::infinity();
  expect_found<float>(DType::kF32, std::numeric_limits<float>::max(), std::nanf(""));
  expect_found<float>(DType::kF32, -std::numeric_limits<float>::max(), -infinity);
  expect_found<double>(DType::kF64, std::numeric_limits<double>::max(), std::nan(""));
  expect_found<std::uint16_t>(DType::kBF16, 0xff7fU, 0xff80U);
  expect_found<std::uint16_t>(DType::kBF16, 0x7f7fU, 0x7fc1U);
  expect_found<std::uint16_t>(DType::kF16, 0x7bffU, 0x7c00U);
  expect_found<std::uint16_t>(DType::kF16, 0xfbffU, 0xfe00U);
}

TEST(CheckFinite, ReadsUnalignedDataAndPassesIntegers) {
  std::vector<float> values(4, 1.0F);
  values[3] = std::nanf("");
  std::string bytes = "x" + std::string(reinterpret_cast<const char*>(values.data()), 16);
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data()) + 1;
  EXPECT_THAT(message_of(check_finite({data, {4}, DType::kF32, "w"})), HasSubstr("element 3"));
  EXPECT_TRUE(check_finite({data, {4}, DType::kI32, "w"}).has_value());
}

// A block is refused exactly where one of the values it stands for is NaN or infinite: not for its
// codes, whatever floats they would be.
TEST(CheckFinite, LooksAtTheValuesOfBlocks) {
  std::mt19937 random(3);
  for (const QuantizedFormat format : all_quantized_formats()) {
    SCOPED_TRACE(quantized_format_name(format));
    const std::int64_t elements = quantized_block_elements(format);
    const auto size = static_cast<std::size_t>(quantized_block_bytes(format));
    int refused = 0;
    for (int round = 0; round < 4000; ++round) {
      std::vector<std::byte> block(size);
      for (std::byte& byte : block) {
        // Exponents of all ones are to be seen often, and often not.
        byte = static_cast<std::byte>(random() % 8 == 0 ? 0x7fU : random() & 0xffU);
      }
      std::vector<float> values(static_cast<std::size_t>(elements));
      dequantize_row(format, block.data(), elements, values.data());
      const bool finite = std::all_of(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); });
      const TensorView view = {
          .data = block.data(), .shape = {1, elements}, .name = "w", .quantization = format};
      ASSERT_EQ(check_finite(view).has_value(), finite);
      refused += finite ? 0 : 1;
    }
    // Every scale of NVFP4 is a number.
    EXPECT_EQ(refused > 20, format != QuantizedFormat::kNvfp4);
    EXPECT_LT(refused, 3900);
  }
}

TEST(CheckFinite, NamesTheBlock) {
  std::vector<std::byte> blocks(3 * 34);
  blocks[2 * 34 + 1] = std::byte{0x7c};
  const TensorView view = {
      .data = blocks.data(), .shape = {1, 96}, .name = "w", .quantization = QuantizedFormat::kQ80};
  EXPECT_THAT(message_of(check_finite(view)), HasSubstr("tensor w: block 2 of [1, 96] (Q8_0)"));
}

}  // namespace
}  // namespace kakeya
