#include "formats/snapshot_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "formats/snapshot_scratch.h"

namespace kakeya {
namespace {

using testing::HasSubstr;

std::string small_file() {
  const ScratchFolder folder;
  EXPECT_TRUE(write_snapshot(folder.path("s"), kKey, kSmall).has_value());
  return read_file(folder.path("s"));
}

// The error for this file, which must be refused on opening or on reading.
Error refusal_of(const std::string& path) {
  return error_naming("bad.snapshot", read_snapshot(path));
}

// The error for a file of these bytes, which must be refused.
Error snapshot_refusal(const std::string& bytes) {
  const ScratchFolder folder;
  return refusal_of(folder.write("bad.snapshot", bytes));
}

// A file put together from the description in docs/formats/snapshot.md and not by the writer, so
// that the header can be wrong and its checksum right. `body` is what follows the preamble.
std::string framed(const std::string& header, const std::string& body, std::uint32_t version = 1) {
  std::string bytes = "KAKEYASN";
  const auto put = [&bytes](auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  put(version);
  put(std::uint32_t{0});
  put(std::uint64_t{64 + body.size() + header.size()});
  put(std::uint64_t{header.size()});
  put(std::uint64_t{XXH3_64bits(header.data(), header.size())});
  bytes.resize(64);
  return bytes + body + header;
}

std::string checksum_text(std::string_view bytes) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return text;
}

std::string entry(std::string_view name,
                  std::string_view offset,
                  std::string_view length,
                  std::string_view checksum = "0000000000000000") {
  std::string text = R"({"name":")" + std::string(name) + R"(","offset":)" + std::string(offset);
  text += R"(,"length":)" + std::string(length) + R"(,"checksum":")" + std::string(checksum);
  return text + "\"}";
}

std::string header_of(const std::string& entries) {
  return R"({"key":{},"sections":[)" + entries + "]}";
}

// `text` with zeros up to a multiple of 64.
std::string padded(std::string text) {
  text.resize((text.size() + 63) / 64 * 64);
  return text;
}

TEST(SnapshotFile, GivesBackWhatWasWritten) {
  const ScratchFolder folder;
  std::mt19937 random(7);
  Contents contents = kSmall;
  contents.emplace_back("rows \"of\" layer\n0", std::string((1 << 20) + 13, '\0'));
  for (char& byte : contents.back().second) byte = static_cast<char>(random());
  contents.emplace_back("last and empty", "");
  const std::string path = folder.path("s");
  const Status written = write_snapshot(path, kKey, contents);
  ASSERT_TRUE(written.has_value()) << written.error().message();
  const auto read = read_snapshot(path);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->first, kKey);
  EXPECT_TRUE(read->second == contents);  // not EXPECT_EQ: it would print a megabyte
  EXPECT_EQ(files_in(folder), 1U);
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST(SnapshotFile, AlignsSectionsAndKeepsSpansWhenMoved) {
  const ScratchFolder folder;
  ASSERT_TRUE(write_snapshot(folder.path("s"), kKey, kSmall).has_value());
  auto opened = SnapshotFile::open(folder.path("s"));
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const auto before = opened->section("rows");
  SnapshotFile file = std::move(*opened);
  const auto after = file.section("rows");
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(before->data(), after->data());
  EXPECT_EQ(text_of(*after), std::string(70, 'r'));
  for (const auto& [name, text] : kSmall) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.section(name)->data()) % 64, 0U) << name;
  }
}

TEST(SnapshotFile, HoldsNoSectionAndNoKey) {
  const ScratchFolder folder;
  ASSERT_TRUE(write_snapshot(folder.path("s"), {}, {}).has_value());
  const auto read = read_snapshot(folder.path("s"));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_TRUE(read->first.empty() && read->second.empty());
}

TEST(SnapshotFile, ReadsAFileMadeFromTheDescription) {
  const ScratchFolder folder;
  const std::string header =
      header_of(entry("a", "64", "3", checksum_text("abc")) + "," +
                entry("b", "128", "64", checksum_text(std::string(64, 'b'))));
  const std::string body = padded("abc") + std::string(64, 'b');
  const auto read = read_snapshot(folder.write("s", framed(header, body)));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->second, (Contents{{"a", "abc"}, {"b", std::string(64, 'b')}}));
}

// The kept file was made by the first version of the writer: what is on disk must stay readable,
// and a change of the layout needs a new version.
TEST(SnapshotFile, WritesAndReadsTheKeptFile) {
  const std::string kept = read_file(KAKEYA_SOURCE_DIR "/tests/fuzz/corpus/snapshot/small");
  EXPECT_EQ(small_file(), kept);
  const auto read = read_snapshot(KAKEYA_SOURCE_DIR "/tests/fuzz/corpus/snapshot/small");
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->first, kKey);
  EXPECT_EQ(read->second, kSmall);
}

// Changed in place: thousands of new files take seconds.
TEST(SnapshotFile, RefusesEveryFlippedBit) {
  const ScratchFolder folder;
  const std::string whole = small_file();
  const std::string path = folder.write("bad.snapshot", whole);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    const auto position = static_cast<std::streamoff>(bit / 8);
    file.seekp(position).put(static_cast<char>(whole[bit / 8] ^ (1 << (bit % 8)))).flush();
    refusal_of(path);
    ASSERT_FALSE(HasFailure()) << "bit " << bit % 8 << " of byte " << bit / 8;
    file.seekp(position).put(whole[bit / 8]).flush();
  }
  ASSERT_TRUE(file.good());
  EXPECT_TRUE(read_snapshot(path).has_value());  // or another damage was refused each time
}

TEST(SnapshotFile, RefusesEveryTruncationAndAnAppendedByte) {
  const ScratchFolder folder;
  const std::string whole = small_file();
  const std::string path = folder.write("bad.snapshot", whole + '\0');
  const std::string sizes = "expected " + std::to_string(whole.size()) +
                            " bytes in the file, got " + std::to_string(whole.size() + 1);
  EXPECT_THAT(refusal_of(path).message(), HasSubstr(sizes));
  for (std::size_t size = whole.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    EXPECT_EQ(refusal_of(path).code(), StatusCode::kDataLoss) << size;
  }
}

TEST(SnapshotFile, SaysThatAFileIsMissingOrIsNoSnapshot) {
  const ScratchFolder folder;
  EXPECT_EQ(code_of(SnapshotFile::open(folder.path("none"))), StatusCode::kNotFound);
  EXPECT_EQ(code_of(SnapshotFile::open(folder.root())), StatusCode::kInvalidArgument);
  const Error other = snapshot_refusal("{\n" + std::string(100, ' '));
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("begins with KAKEYASN, got \"{\\x0a      \""));
}

TEST(SnapshotFile, RefusesAnotherVersion) {
  for (const std::uint32_t version : {0U, 2U, 0x01000000U}) {
    const Error error = snapshot_refusal(framed(header_of(""), "", version));
    EXPECT_EQ(error.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(error.message(),
                HasSubstr("expected snapshot version 1, got " + std::to_string(version)));
  }
}

TEST(SnapshotFile, SaysWhichSectionIsDamagedAndReadsTheOthers) {
  const ScratchFolder folder;
  std::string damaged = small_file();
  damaged[64] = '?';  // the first byte of "tokens"
  auto file = SnapshotFile::open(folder.write("s", damaged));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(code_of(file->section("tokens")), StatusCode::kDataLoss);
    EXPECT_THAT(message_of(file->section("tokens")),
                HasSubstr("s: section tokens: expected checksum " + checksum_text("12345")));
  }
  EXPECT_TRUE(file->section("rows").has_value());
  EXPECT_EQ(code_of(file->section("absent\n")), StatusCode::kNotFound);
  EXPECT_THAT(message_of(file->section("absent\n")), HasSubstr("no section \"absent\\x0a\""));
}

TEST(SnapshotFile, RefusesLayoutsWithHolesOverlapsAndLies) {
  const auto message = [](const std::string& entries, const std::string& body) {
    return snapshot_refusal(framed(header_of(entries), body)).message();
  };
  const std::string body = padded("abc") + padded("def");
  const std::string first = entry("a", "64", "3") + ",";
  EXPECT_THAT(message(first + entry("b", "64", "3"), body),
              HasSubstr("section b: expected to begin at byte 128, got 64"));
  EXPECT_THAT(message(first + entry("b", "192", "0"), body), HasSubstr("got 192"));
  EXPECT_THAT(message(first + entry("b", "67", "3"), body), HasSubstr("got 67"));
  EXPECT_THAT(message(entry("b", "128", "3") + "," + entry("a", "64", "3"), body),
              HasSubstr("section b: expected to begin at byte 64, got 128"));
  EXPECT_THAT(message(first + entry("b", "128", "65"), body),
              HasSubstr("section b: expected at most 64 bytes before the header, got 65"));
  EXPECT_THAT(message(first + entry("b", "128", "9223372036854775807"), body),
              HasSubstr("got 9223372036854775807"));
  EXPECT_THAT(message(entry("a", "64", "3"), body),
              HasSubstr("header: expected to begin at byte 128, got 192"));
  EXPECT_THAT(
      message(entry("a", "64", "128") + "," + entry("b", "192", "0") + "," + entry("c", "192", "1"),
              body),
      HasSubstr("section c: expected at most 0 bytes"));
  EXPECT_THAT(message(entry("a", "64", "3"), "abc"), HasSubstr("expected to begin at byte 128"));
  EXPECT_THAT(message(entry("a", "64", "3"), padded("abcd")),
              HasSubstr("header: expected zeros in the 61 bytes before it"));
  EXPECT_THAT(message(entry("a", "64", "2") + "," + entry("b", "128", "3"), body),
              HasSubstr("section b: expected zeros in the 62 bytes before it"));
}

TEST(SnapshotFile, RefusesHeadersThatAreNotWhatTheFormatSays) {
  const auto message = [](const std::string& header) {
    return snapshot_refusal(framed(header, "")).message();
  };
  const auto in_entry = [&](const std::string& text) { return message(header_of(text)); };
  EXPECT_THAT(message(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("expected a JSON object, got a list"));
  EXPECT_THAT(message("{}"), HasSubstr("key: expected an object, got nothing"));
  EXPECT_THAT(message(R"({"key":{"a":1},"sections":[]})"), HasSubstr("key.a: expected a string"));
  EXPECT_THAT(message(R"({"key":{}})"), HasSubstr("sections: expected a list, got nothing"));
  EXPECT_THAT(message(R"({"key":{},"sections":{}})"), HasSubstr("got an object"));
  EXPECT_THAT(message(R"({"key":{},"sections":[],"more\n":1})"),
              HasSubstr("expected the fields key, sections, got \"more\\x0a\""));
  EXPECT_THAT(message(R"({"key":{"a":"1","a":"2"},"sections":[]})"), HasSubstr("duplicate key"));
  EXPECT_THAT(in_entry("1"), HasSubstr("header: sections[0]: expected an object, got 1"));
  EXPECT_THAT(in_entry("{}"), HasSubstr("sections[0].name: expected 1 to 128 bytes, got 0"));
  EXPECT_THAT(in_entry(R"({"extra":1})"), HasSubstr("got \"extra\""));
  EXPECT_THAT(in_entry(entry(std::string(129, 'n'), "64", "0")), HasSubstr("got 129"));
  EXPECT_THAT(in_entry(entry("a", "-64", "0")), HasSubstr("offset: expected an integer from 0"));
  EXPECT_THAT(in_entry(entry("a", "64", "-1")), HasSubstr("length: expected an integer from 0"));
  EXPECT_THAT(in_entry(entry("a", "64", "18446744073709551615")), HasSubstr("length: expected"));
  for (const char* checksum :
       {"", "0", "000000000000000A", "00000000000000000", "-000000000000000", "000000000000000g"}) {
    EXPECT_THAT(in_entry(entry("a", "64", "0", checksum)), HasSubstr("16 hexadecimal digits"));
  }
  EXPECT_THAT(in_entry(entry("a", "64", "0") + "," + entry("a", "64", "0")),
              HasSubstr("expected each name once, got \"a\" twice"));
}

TEST(SnapshotFile, BoundsSectionsAndHeader) {
  std::string many;
  for (int i = 0; i < 4097; ++i) many += "," + entry(std::to_string(i), "64", "0");
  EXPECT_THAT(snapshot_refusal(framed(header_of(many.substr(1)), "")).message(),
              HasSubstr("sections: expected at most 4096, got more"));
  EXPECT_THAT(snapshot_refusal(framed(std::string((4 << 20) + 1, ' '), "")).message(),
              HasSubstr("header: expected at most 4194304 bytes, got 4194305"));
  std::string lying = framed(header_of(""), "");
  lying[24 + 7] = '\x7f';  // the header's length, near 2^63
  EXPECT_THAT(snapshot_refusal(lying).message(), HasSubstr("header: expected at most"));
}

TEST(SnapshotFile, ComparesTheKey) {
  const ScratchFolder folder;
  ASSERT_TRUE(write_snapshot(folder.path("s"), kKey, {}).has_value());
  const auto file = SnapshotFile::open(folder.path("s"));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_TRUE(file->check_key(kKey).has_value());
  const auto message = [&](const SnapshotKey& key) {
    EXPECT_EQ(code_of(file->check_key(key)), StatusCode::kFailedPrecondition);
    return message_of(file->check_key(key));
  };
  SnapshotKey other = kKey;
  other["model"] = "n";
  EXPECT_THAT(message(other),
              HasSubstr("s: key model: expected \"n\", got \"m \"1\" \\xc3\\xa9\\x0a\""));
  other["mode"] = "lossy";  // before "model"
  EXPECT_THAT(message(other), HasSubstr("key mode: expected \"lossy\", got \"exact\""));
  other = kKey;
  other["a\n"] = "";
  EXPECT_THAT(message(other), HasSubstr("key a\\x0a: expected \"\", got nothing"));
  EXPECT_THAT(message({}), HasSubstr("key mode: expected nothing, got \"exact\""));
}

}  // namespace
}  // namespace kakeya
