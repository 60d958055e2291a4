// Reading of GGUF files: one that gguf-py wrote (tools/make_quantized_goldens.py), and files made
// here that are wrong.
#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf_scratch.h"
#include "formats/safetensors.h"
#include "formats/scratch_files.h"
#include "thorough.h"

namespace kakeya {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr IntegerRange kAnyInteger = {std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int64_t>::max()};
constexpr NumberRange kAnyNumber = {-INFINITY, INFINITY};

const std::string kSmallGolden = std::string(KAKEYA_TEST_DATA) + "/quantized/small.gguf";

GgufFile small_golden() {
  auto file = GgufFile::open(kSmallGolden);
  EXPECT_TRUE(file.has_value()) << file.error().message();
  return std::move(file).value();
}

Result<GgufFile> open_bytes(const ScratchFolder& folder, const std::string& bytes) {
  return GgufFile::open(folder.write("t.gguf", bytes));
}

// The error for a file of these bytes, which must be refused in one line.
Error gguf_refusal(const std::string& bytes) {
  const ScratchFolder folder;
  return error_naming("t.gguf", open_bytes(folder, bytes));
}

Error gguf_refusal(const GgufBytes& bytes) {
  return gguf_refusal(bytes.bytes());
}

void expect_accepted(const GgufBytes& bytes) {
  const ScratchFolder folder;
  const auto file = open_bytes(folder, bytes.bytes());
  EXPECT_TRUE(file.has_value()) << file.error().message();
}

TEST(GgufFile, ReadsTensorsOfTheDefiningPackageBitForBit) {
  const GgufFile file = small_golden();
  const auto expected =
      SafetensorsFile::open(std::string(KAKEYA_TEST_DATA) + "/quantized/small.safetensors");
  ASSERT_TRUE(expected.has_value());
  ASSERT_EQ(file.tensors().size(), expected->tensors().size());
  for (const TensorView& small_golden : expected->tensors()) {
    SCOPED_TRACE(small_golden.name);
    const GgufTensor* tensor = file.find(small_golden.name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, small_golden.shape);
    const auto values = to_f32(*tensor);
    ASSERT_TRUE(values.has_value());
    ASSERT_EQ(values->size() * sizeof(float), small_golden.bytes());
    EXPECT_EQ(std::memcmp(values->data(), small_golden.data, small_golden.bytes()), 0);
  }
  EXPECT_EQ(file.tensors()[0].name, "plain.f32");
  EXPECT_EQ(gguf_encoding_name(file.find("plain.bf16")->encoding), "BF16");
  EXPECT_EQ(file.find("blocks.q6_k")->encoding, GgufEncoding(QuantizedFormat::kQ6K));
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.alignment(), 64U);
}

TEST(GgufFile, ReadsEveryTypeOfMetadata) {
  const GgufFile file = small_golden();
  EXPECT_EQ(file.metadata().size(), golden_metadata().size() + 1);
  EXPECT_EQ(file.metadata()[0].key, "general.architecture");
  EXPECT_EQ(file.text("general.architecture").value(), "kakeya-test");
  EXPECT_EQ(file.text("types.string").value(), "gr\u00fc\u00df dich \U0001f600\n");
  EXPECT_TRUE(file.boolean("types.bool").value());
  const auto integer = [&](std::string_view type) {
    return file.integer("types." + std::string(type), kAnyInteger).value();
  };
  EXPECT_EQ(integer("uint8"), 255);
  EXPECT_EQ(integer("int8"), -128);
  EXPECT_EQ(integer("uint16"), 65535);
  EXPECT_EQ(integer("int16"), -32768);
  EXPECT_EQ(integer("uint32"), 4294967295);
  EXPECT_EQ(integer("int32"), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(integer("int64"), std::numeric_limits<std::int64_t>::min());
  const auto number = [&](std::string_view type) {
    return file.number("types." + std::string(type), kAnyNumber).value();
  };
  EXPECT_EQ(number("float32"), 0.1F);
  EXPECT_EQ(number("float64"), 0.1);
  EXPECT_EQ(number("int8"), -128.0);
  EXPECT_EQ(number("uint64"), 18446744073709551615.0);
  EXPECT_EQ(file.find_value("types.uint64")->type, GgufValueType::kUint64);
  EXPECT_EQ(file.find_value("absent"), nullptr);
}

TEST(GgufFile, ReadsEveryTypeOfArray) {
  const GgufFile file = small_golden();
  const auto integers = [&](std::string_view type) {
    return file.integers("arrays." + std::string(type), kAnyInteger).value();
  };
  EXPECT_THAT(integers("uint8"), ElementsAre(0, 255));
  EXPECT_THAT(integers("int8"), ElementsAre(-128, 127));
  EXPECT_THAT(integers("uint16"), ElementsAre(0, 65535));
  EXPECT_THAT(integers("int16"), ElementsAre(-32768, 32767));
  EXPECT_THAT(integers("uint32"), ElementsAre(0, 4294967295));
  EXPECT_THAT(integers("int64"), ElementsAre(kAnyInteger.low, kAnyInteger.high));
  EXPECT_THAT(file.numbers("arrays.float32", kAnyNumber).value(), ElementsAre(0.1F, -1.5F, 1e30F));
  EXPECT_THAT(file.numbers("arrays.float64", kAnyNumber).value(), ElementsAre(0.1, -1e300));
  EXPECT_THAT(file.numbers("arrays.uint64", kAnyNumber).value(),
              ElementsAre(0.0, 18446744073709551615.0));
  EXPECT_THAT(file.booleans("arrays.bool").value(), ElementsAre(true, false, true));
  EXPECT_THAT(file.texts("arrays.string").value(),
              ElementsAre("", "a", "\u2581the", std::string("b\0c", 3)));
  const auto nested = file.arrays("arrays.nested").value();
  ASSERT_EQ(nested.size(), 3U);
  EXPECT_EQ(nested[2].element_type, GgufValueType::kInt32);
  EXPECT_EQ(nested[2].count, 3U);
  const std::int32_t expected[] = {4, 5, 6};
  ASSERT_EQ(nested[2].bytes.size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(nested[2].bytes.data(), expected, sizeof(expected)), 0);
}

TEST(GgufFile, ReadsWhatIsTheSameForEveryLayerAsAListOfOne) {
  const GgufFile file = small_golden();
  EXPECT_THAT(file.integers("types.uint16", kAnyInteger).value(), ElementsAre(65535));
  EXPECT_THAT(file.numbers("types.float64", kAnyNumber).value(), ElementsAre(0.1));
  EXPECT_THAT(file.booleans("types.bool").value(), ElementsAre(true));
}

TEST(GgufFile, FallsBackOnlyWithoutTheKey) {
  const GgufFile file = small_golden();
  EXPECT_EQ(file.text_or("absent", "x").value(), "x");
  EXPECT_EQ(file.text_or("general.architecture", "x").value(), "kakeya-test");
  EXPECT_EQ(file.integer_or("absent", 7, {0, 1}).value(), 7);
  EXPECT_EQ(file.integer_or("types.uint8", 7, {0, 255}).value(), 255);
  EXPECT_EQ(file.number_or("absent", 0.5, {0, 1}).value(), 0.5);
  EXPECT_EQ(file.number_or("types.float64", 0.5, {0, 1}).value(), 0.1);
  EXPECT_EQ(file.boolean_or("absent", true).value(), true);
  EXPECT_EQ(code_of(file.integer_or("types.uint8", 7, {0, 254})), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(file.boolean_or("types.uint8", true)), StatusCode::kInvalidArgument);
}

TEST(GgufFile, SaysWhatAValueShouldHaveBeen) {
  const GgufFile file = small_golden();
  const std::string where = "small.gguf: key ";
  EXPECT_EQ(code_of(file.text("absent")), StatusCode::kNotFound);
  EXPECT_THAT(message_of(file.text("absent")),
              HasSubstr(where + "absent: expected a string, got nothing"));
  EXPECT_THAT(message_of(file.text("types.uint8")),
              HasSubstr(where + "types.uint8: expected a string, got uint8 255"));
  EXPECT_THAT(message_of(file.integer("types.uint64", kAnyInteger)),
              HasSubstr("got uint64 18446744073709551615"));
  EXPECT_THAT(message_of(file.integer("types.float32", {1, 9})),
              HasSubstr("expected an integer from 1 to 9, got float32 0.1"));
  EXPECT_THAT(message_of(file.number("types.float64", {1, 2})),
              HasSubstr("expected a number from 1 to 2, got float64 0.1"));
  EXPECT_THAT(message_of(file.number("types.bool", {0, 1})), HasSubstr("got bool true"));
  EXPECT_THAT(message_of(file.boolean("types.string")),
              HasSubstr(R"(got string "gr\xc3\xbc\xc3\x9f dich \xf0\x9f\x98\x80\x0a")"));
  EXPECT_THAT(message_of(file.integer("arrays.int8", {-128, 127})),
              HasSubstr("expected an integer from -128 to 127, got an array of 2 int8"));
  EXPECT_THAT(message_of(file.integers("arrays.int8", {-128, 126})),
              HasSubstr("element 1: expected an integer from -128 to 126, got int8 127"));
  EXPECT_THAT(message_of(file.integers("arrays.string", {0, 1})), HasSubstr("array of 4 string"));
  EXPECT_THAT(message_of(file.texts("arrays.int8")), HasSubstr("expected an array of string"));
  EXPECT_THAT(message_of(file.texts("types.string")), HasSubstr("expected an array of string"));
  EXPECT_THAT(message_of(file.arrays("arrays.int8")), HasSubstr("expected an array of array"));
}

TEST(GgufFile, DoesNotCopyTextsAndData) {
  GgufBytes bytes = GgufBytes::header(0, 1);
  constexpr std::uint64_t kTokens = 50'000;
  bytes.key("tokens", 9).number(std::uint32_t{8}).number(kTokens);
  for (std::uint64_t i = 0; i < kTokens; ++i) bytes.text("token " + std::to_string(i));
  const ScratchFolder folder;
  auto opened = open_bytes(folder, bytes.bytes());
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const GgufFile file = std::move(*opened);
  const auto tokens = file.texts("tokens").value();
  ASSERT_EQ(tokens.size(), kTokens);
  const std::span<const std::byte> stored = file.find_value("tokens")->bytes;
  for (std::uint64_t i = 0; i < kTokens; ++i) {
    ASSERT_EQ(tokens[i], "token " + std::to_string(i));
    const auto* start = reinterpret_cast<const std::byte*>(tokens[i].data());
    ASSERT_TRUE(start >= stored.data() &&
                start + tokens[i].size() <= stored.data() + stored.size());
  }
}

TEST(GgufFile, ReadsVersionTwoScalarsAndEmptyTensors) {
  GgufBytes bytes = GgufBytes::header(3, 0, 2);
  bytes.tensor("scalar", {}, 0, 0).tensor("empty", {0, 5}, 0, 32).tensor("b", {3}, 24, 32);
  bytes.data("1234").data("xyz");
  const ScratchFolder folder;
  const auto file = open_bytes(folder, bytes.bytes());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->version(), 2U);
  EXPECT_TRUE(file->find("scalar")->shape.empty());
  EXPECT_EQ(file->find("scalar")->data.size(), 4U);
  EXPECT_EQ(file->find("empty")->shape, (Shape{5, 0}));
  EXPECT_EQ(std::memcmp(file->find("b")->data.data(), "xyz", 3), 0);
  EXPECT_EQ(code_of(to_f32(*file->find("b"))), StatusCode::kInvalidArgument);
  expect_accepted(GgufBytes::header(0, 0));
}

TEST(GgufFile, RefusesEveryPrefixThatCutsATensor) {
  const std::string whole = read_file(kSmallGolden);
  const GgufFile file = small_golden();
  const GgufTensor& last = file.tensors().back();
  const ScratchFolder folder;
  // Only the padding after the last tensor may be missing.
  std::size_t end = 0;
  for (std::size_t size = 0; size <= whole.size() && end == 0; ++size) {
    if (open_bytes(folder, whole.substr(0, size))) end = size;
  }
  ASSERT_GE(end, last.data.size());
  EXPECT_EQ(std::memcmp(whole.data() + end - last.data.size(), last.data.data(), last.data.size()),
            0);
  EXPECT_EQ(gguf_refusal(whole.substr(0, end - 1)).code(), StatusCode::kDataLoss);
  EXPECT_LT(whole.size() - end, 64U);
}

TEST(GgufFile, OpensABeginningForWhatItsHeaderSays) {
  const std::string whole = read_file(kSmallGolden);
  const GgufFile file = small_golden();
  std::size_t data = whole.size();  // where the first tensor begins
  for (const GgufTensor& tensor : file.tensors()) {
    data =
        std::min(data, static_cast<std::size_t>(tensor.data.data() - file.file().bytes().data()));
  }
  EXPECT_LE(file.whole_bytes(), whole.size());
  EXPECT_GT(file.whole_bytes() + 64, whole.size());
  const ScratchFolder folder;
  for (const std::size_t size : {data, data + 1, (data + whole.size()) / 2, whole.size()}) {
    const auto cut = GgufFile::open_beginning(folder.write("t.gguf", whole.substr(0, size)));
    ASSERT_TRUE(cut.has_value()) << cut.error().message();
    EXPECT_EQ(cut->whole_bytes(), file.whole_bytes());
    ASSERT_EQ(cut->tensors().size(), file.tensors().size());
    for (std::size_t i = 0; i < cut->tensors().size(); ++i) {
      const GgufTensor& tensor = cut->tensors()[i];
      EXPECT_EQ(tensor.shape, file.tensors()[i].shape);
      if (tensor.data.size() == file.tensors()[i].data.size()) continue;
      EXPECT_TRUE(tensor.data.empty()) << size;
      EXPECT_LT(size, whole.size());
      EXPECT_EQ(code_of(to_f32(tensor)), StatusCode::kDataLoss) << size;
    }
  }
  const auto half = GgufFile::open_beginning(folder.write("t.gguf", whole.substr(0, data / 2)));
  ASSERT_FALSE(half.has_value());
  EXPECT_EQ(half.error().code(), StatusCode::kDataLoss);
}

TEST(GgufFile, RefusesAnotherFormatVersionOrByteOrder) {
  EXPECT_EQ(gguf_refusal("").code(), StatusCode::kDataLoss);
  EXPECT_THAT(gguf_refusal("ggml rest of the file").message(),
              HasSubstr("begins with GGUF, got \"ggml"));
  const Error old = gguf_refusal(GgufBytes::header(0, 0, 1));
  EXPECT_EQ(old.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(old.message(), HasSubstr("version 1 is not supported; expected 2 or 3"));
  EXPECT_THAT(gguf_refusal(GgufBytes::header(0, 0, 4)).message(), HasSubstr("version 4"));
  EXPECT_THAT(gguf_refusal(GgufBytes::header(0, 0, 0)).message(), HasSubstr("version 0"));
  EXPECT_THAT(gguf_refusal(GgufBytes::header(0, 0, 0x03000000)).message(), HasSubstr("big-endian"));
}

TEST(GgufFile, RefusesCountsThatDoNotFitTheFile) {
  EXPECT_THAT(gguf_refusal(GgufBytes::header(1, 0)).message(), HasSubstr("1 tensors do not fit"));
  EXPECT_THAT(gguf_refusal(GgufBytes::header(0, 1)).message(), HasSubstr("1 keys do not fit"));
  const auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(gguf_refusal(GgufBytes::header(most, 0)).message(),
              HasSubstr("at most 1048576 tensors, got 18446744073709551615"));
  EXPECT_THAT(gguf_refusal(GgufBytes::header(0, most)).message(),
              HasSubstr("at most 1048576 keys"));
}

// The error for one key whose value is these bytes.
std::string value_refusal(std::uint32_t type, const GgufBytes& value) {
  GgufBytes bytes = GgufBytes::header(0, 1);
  bytes.key("k", type).raw(value.bytes());
  const std::string message = gguf_refusal(bytes).message();
  EXPECT_THAT(message, HasSubstr("key k: "));
  return message;
}

// Arrays inside each other, the innermost of no elements.
GgufBytes nested_arrays(int depth) {
  GgufBytes bytes;
  for (int i = 1; i < depth; ++i) bytes.number(std::uint32_t{9}).number(std::uint64_t{1});
  return bytes.number(std::uint32_t{0}).number(std::uint64_t{0});
}

TEST(GgufFile, RefusesMalformedValues) {
  const auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(value_refusal(13, GgufBytes().raw("12345678")), HasSubstr("up to 12, got 13"));
  EXPECT_THAT(value_refusal(10, GgufBytes().raw("1234")), HasSubstr("only 4 are left"));
  EXPECT_THAT(value_refusal(7, GgufBytes().raw("\x02")), HasSubstr("expected 0 or 1, got 2"));
  EXPECT_THAT(value_refusal(8, GgufBytes().number(most)),
              HasSubstr("string at byte 45 has 18446744073709551615 bytes, but only 0 are left"));
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return GgufBytes().number(type).number(count).raw("12345678");
  };
  EXPECT_THAT(value_refusal(9, array(13, 1)), HasSubstr("up to 12, got 13"));
  EXPECT_THAT(value_refusal(9, array(0, 9)), HasSubstr("array of 9 uint8 at byte"));
  // 2^61 eight-byte elements are 0 bytes in 64 bits.
  EXPECT_THAT(value_refusal(9, array(10, std::uint64_t{1} << 61)), HasSubstr("does not fit the 8"));
  EXPECT_THAT(value_refusal(9, array(8, 2)), HasSubstr("array of 2 string"));
  EXPECT_THAT(value_refusal(9, array(8, 1)), HasSubstr("string at byte"));
  EXPECT_THAT(value_refusal(9, array(9, 1)), HasSubstr("array of 1 array"));
  EXPECT_THAT(value_refusal(9, array(7, 8)), HasSubstr("boolean 0: expected 0 or 1, got 49"));
  EXPECT_THAT(value_refusal(9, nested_arrays(5)), HasSubstr("at most 4 arrays inside each other"));
  GgufBytes deepest = GgufBytes::header(0, 1);
  expect_accepted(deepest.key("k", 9).raw(nested_arrays(4).bytes()));
}

TEST(GgufFile, RefusesNamesThatAreRepeatedOrNoText) {
  const auto keys = [](std::string_view first, std::string_view second) {
    GgufBytes bytes = GgufBytes::header(0, 2);
    bytes.key(first, 0).raw("1").key(second, 0).raw("1");
    return gguf_refusal(bytes).message();
  };
  EXPECT_THAT(keys("k", "k"), HasSubstr("key k: expected it once, got it twice"));
  EXPECT_THAT(keys("", "kk"), HasSubstr("key: expected 1 to 65535 bytes of UTF-8, got 0"));
  EXPECT_THAT(keys("k", "\xff"), HasSubstr(R"(got 1: "\xff")"));
  const auto tensors = [](std::string_view first, std::string_view second) {
    GgufBytes bytes = GgufBytes::header(2, 0);
    bytes.tensor(first, {1}, 0, 0).tensor(second, {1}, 0, 32).data("1234").data("1234");
    return gguf_refusal(bytes).message();
  };
  EXPECT_THAT(tensors("a\nb", "a\nb"), HasSubstr(R"(tensor a\x0ab: expected it once)"));
  EXPECT_THAT(tensors("", "aa"), HasSubstr("tensor name: expected 1 to 65535 bytes"));
  EXPECT_THAT(tensors("a", "\xc0\x80"), HasSubstr("tensor name: expected"));
  EXPECT_THAT(tensors(std::string(65536, 'x'), "b"), HasSubstr("got 65536: \"xxx"));
}

// The error for one tensor of these sizes and type with eight bytes of data.
Error tensor_refusal(const std::vector<std::uint64_t>& sizes,
                     std::uint32_t type,
                     std::uint64_t offset = 0) {
  GgufBytes bytes = GgufBytes::header(1, 0);
  bytes.tensor("blk.0.w", sizes, type, offset).data("12345678");
  const Error error = gguf_refusal(bytes);
  EXPECT_THAT(error.message(), HasSubstr("tensor blk.0.w: "));
  return error;
}

TEST(GgufFile, NamesTensorAndTypeThatAreNotSupported) {
  const Error error = tensor_refusal({256}, 16);
  EXPECT_EQ(error.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(error.message(),
              HasSubstr("tensor blk.0.w: type 16 (IQ2_XXS) is not supported; expected one of F32, "
                        "F16, Q4_0, Q4_1, Q5_0"));
  EXPECT_THAT(tensor_refusal({256}, 4).message(), HasSubstr("type 4 (unknown)"));
  EXPECT_THAT(tensor_refusal({256}, 0xffffffff).message(), HasSubstr("type 4294967295 (unknown)"));
}

TEST(GgufFile, RefusesShapesThatDoNotFit) {
  EXPECT_THAT(tensor_refusal({1, 1, 1, 1, 1}, 0).message(), HasSubstr("at most 4 axes, got 5"));
  GgufBytes many = GgufBytes::header(1, 0);
  many.text("t").number(std::uint32_t{0xffffffff}).raw("1234567812345678");
  EXPECT_THAT(gguf_refusal(many).message(), HasSubstr("at most 4 axes, got 4294967295"));
  EXPECT_THAT(tensor_refusal({3}, 0).message(),
              HasSubstr("12 bytes at offset 0, but the file holds 8 bytes of data"));
  EXPECT_THAT(tensor_refusal({std::uint64_t{1} << 63}, 24).message(), HasSubstr("is negative"));
  const std::uint64_t half = std::uint64_t{1} << 32;
  EXPECT_THAT(tensor_refusal({half, half}, 24).message(), HasSubstr("product overflows"));
  EXPECT_THAT(tensor_refusal({0, half, half}, 24).message(), HasSubstr("product overflows"));
  EXPECT_THAT(tensor_refusal({half, half / 4}, 0).message(), HasSubstr("bytes overflows"));
  EXPECT_THAT(tensor_refusal({48, 2}, 2).message(),
              HasSubstr("shape [2, 48] of Q4_0: expected rows of whole blocks of 32, got 48"));
  EXPECT_THAT(tensor_refusal({}, 12).message(), HasSubstr("whole blocks of 256, got 1"));
}

TEST(GgufFile, RefusesOffsetsOutsideTheDataOrInsideAnotherTensor) {
  EXPECT_THAT(tensor_refusal({1}, 0, 4).message(),
              HasSubstr("offset: expected a multiple of 32, got 4"));
  const std::uint64_t last = ~std::uint64_t{31};
  // 32 bytes there end at byte 0 of 64 bits.
  EXPECT_EQ(tensor_refusal({8}, 0, last).code(), StatusCode::kDataLoss);
  EXPECT_EQ(tensor_refusal({0}, 0, 64).code(), StatusCode::kDataLoss);
  const auto two = [](std::uint64_t first, std::uint64_t second) {
    GgufBytes bytes = GgufBytes::header(2, 0);
    bytes.tensor("a", {16}, 0, first).tensor("b", {8}, 0, second).data(std::string(128, '1'));
    return bytes;
  };
  EXPECT_THAT(gguf_refusal(two(0, 32)).message(),
              HasSubstr("tensor b at offset 32 overlaps a, which ends at 64"));
  EXPECT_THAT(gguf_refusal(two(32, 32)).message(), HasSubstr("overlaps"));
  expect_accepted(two(32, 0));  // b, then a: the list may be in any order
  expect_accepted(two(0, 64));
  GgufBytes inside = GgufBytes::header(2, 0);
  inside.tensor("a", {16}, 0, 0).tensor("empty", {0}, 0, 32);
  expect_accepted(inside.data(std::string(64, '1')));
}

TEST(GgufFile, ObeysAndChecksTheAlignment) {
  const auto aligned = [](std::uint32_t alignment, std::uint64_t offset) {
    GgufBytes bytes = GgufBytes::header(1, 1);
    bytes.key("general.alignment", 4).number(alignment).tensor("a", {1}, 0, offset);
    return bytes.data("12345678abcd", alignment == 8 ? 8 : 32);
  };
  const ScratchFolder folder;
  const auto file = open_bytes(folder, aligned(8, 8).bytes());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(std::memcmp(file->find("a")->data.data(), "abcd", 4), 0);
  for (const std::uint32_t bad : {0U, 3U, 0x80000000U}) {
    EXPECT_THAT(gguf_refusal(aligned(bad, 0)).message(),
                HasSubstr("general.alignment: expected a power of two up to 1073741824, got " +
                          std::to_string(bad)));
  }
  GgufBytes text = GgufBytes::header(0, 1);
  text.key("general.alignment", 8).text("32");
  EXPECT_THAT(gguf_refusal(text).message(), HasSubstr("expected a uint32, got string"));
}

// Every byte of the description changed to some values: refused, or still readable to the end.
TEST(GgufFile, SurvivesEveryChangedByte) {
  const std::string whole = read_file(kSmallGolden);
  const ScratchFolder folder;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::size_t combination = i;
    for (const char value : {'\0', '\x09', '\xff', static_cast<char>(whole[i] ^ 1)}) {
      if (!test::is_run(combination++, 4)) continue;
      std::string bytes = whole;
      bytes[i] = value;
      const auto file = open_bytes(folder, bytes);
      if (!file) {
        ASSERT_THAT(file.error().message(), Not(HasSubstr("\n")));
        continue;
      }
      for (const GgufTensor& tensor : file->tensors()) (void)to_f32(tensor);
      for (const GgufEntry& entry : file->metadata()) {
        (void)file->texts(entry.key);
        (void)file->integers(entry.key, kAnyInteger);
        (void)file->arrays(entry.key);
      }
    }
  }
}

}  // namespace
}  // namespace kakeya
