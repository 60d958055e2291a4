// Snapshots read piece by piece, from files that change meanwhile or are none.
#include "formats/snapshot_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/scratch_files.h"
#include "formats/snapshot_file.h"

namespace kakeya {
namespace {

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 3);
  return bytes;
}

void write(const std::string& path, std::span<const std::byte> bytes) {
  auto writer = SnapshotWriter::create(path).value();
  ASSERT_TRUE(writer.add("small", bytes.first(100)).has_value());
  ASSERT_TRUE(writer.add("rows", bytes).has_value());
  ASSERT_TRUE(writer.finish({{"model", "m"}}).has_value());
}

StatusCode code_of_rows(const SnapshotReader& reader, const SnapshotReader::Take& take) {
  const Status done = reader.read(reader.find("rows").value(), take);
  return done ? StatusCode{} : done.error().code();
}

TEST(SnapshotReader, GivesSectionsInPieces) {
  const ScratchFolder folder;
  const std::vector<std::byte> bytes = some_bytes((std::size_t{5} << 19) + 7);
  write(folder.path("s"), bytes);
  const SnapshotReader reader = SnapshotReader::open(folder.path("s")).value();
  EXPECT_EQ(reader.key(), (SnapshotKey{{"model", "m"}}));
  std::vector<std::byte> read;
  int pieces = 0;
  const auto take = [&](std::span<const std::byte> piece) {
    read.insert(read.end(), piece.begin(), piece.end());
    ++pieces;
    return Status();
  };
  EXPECT_EQ(code_of_rows(reader, take), StatusCode{});
  EXPECT_TRUE(read == bytes);
  EXPECT_EQ(pieces, 3);
  EXPECT_EQ(reader.find("none").error().code(), StatusCode::kNotFound);
}

TEST(SnapshotReader, EndsWithAnErrorWhereTheFileIsCutOff) {
  const ScratchFolder folder;
  write(folder.path("s"), some_bytes(std::size_t{3} << 20));
  const SnapshotReader reader = SnapshotReader::open(folder.path("s")).value();
  const auto cut = [&](std::span<const std::byte>) {
    std::filesystem::resize_file(folder.path("s"), 4096);
    return Status();
  };
  EXPECT_EQ(code_of_rows(reader, cut), StatusCode::kDataLoss);
  EXPECT_EQ(SnapshotReader::open(folder.path("s")).error().code(), StatusCode::kDataLoss);
}

TEST(SnapshotReader, RefusesDamageAndWhatItIsTold) {
  const ScratchFolder folder;
  std::vector<std::byte> bytes = some_bytes(1000);
  write(folder.path("s"), bytes);
  {
    std::fstream file(folder.path("s"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(600);
    file.put('\x55');
    file.put('\xaa');
  }
  const SnapshotReader reader = SnapshotReader::open(folder.path("s")).value();
  const auto take = [](std::span<const std::byte>) { return Status(); };
  EXPECT_EQ(code_of_rows(reader, take), StatusCode::kDataLoss);
  const auto refuse = [](std::span<const std::byte>) -> Status {
    return error(StatusCode::kCancelled, "no more");
  };
  EXPECT_EQ(code_of_rows(reader, refuse), StatusCode::kCancelled);
}

// None of them is waited for.
TEST(SnapshotReader, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(SnapshotReader::open(folder.path("fifo")).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SnapshotReader::open(folder.root()).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SnapshotReader::open(folder.path("none")).error().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kakeya
