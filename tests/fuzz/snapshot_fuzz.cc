// A snapshot file from anybody: no input crashes, every section of an accepted file lies inside it
// behind the one before and is found by its name, and messages are single lines. Each input is read
// twice: as it is, and with its lengths and the header's checksum made right, because no fuzzer
// guesses a checksum and all behind it would stay untested.
#include <fcntl.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "formats/snapshot_file.h"
#include "memory_file.h"

namespace {

void expect_one_line(const kakeya::Error& error) {
  KAKEYA_CHECK(error.message().find('\n') == std::string::npos);
}

void read_everything(const std::uint8_t* data, std::size_t size) {
  const kakeya::test::MemoryFile memory(data, size);
  auto file = kakeya::SnapshotFile::open(memory.path());
  if (!file) return expect_one_line(file.error());
  std::uint64_t end = kakeya::kSnapshotAlignment;
  for (const kakeya::SnapshotSection& section : file->sections()) {
    KAKEYA_CHECK(section.offset >= end && section.offset - end < kakeya::kSnapshotAlignment);
    end = section.offset + section.length;
    KAKEYA_CHECK(end >= section.offset && end < size);
    const auto bytes = file->section(section.name);
    if (!bytes) {
      expect_one_line(bytes.error());
    } else if (!bytes->empty()) {
      KAKEYA_CHECK(std::memcmp(bytes->data(), data + section.offset, bytes->size()) == 0);
    }
  }
  KAKEYA_CHECK(file->check_key(file->key()).has_value());
  const auto differs = file->check_key({{"model", "x"}, {"unlikely", ""}});
  if (!differs) expect_one_line(differs.error());
}

// The header is taken to begin at the first aligned "{", so that it may grow and shrink; without
// one it has the length that the input says.
void make_frame_right(std::vector<std::uint8_t>& bytes) {
  const std::uint64_t file_bytes = bytes.size();
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 24, sizeof(header_bytes));
  header_bytes = std::min(header_bytes, file_bytes - 64);
  for (std::size_t offset = 64; offset < bytes.size(); offset += 64) {
    if (bytes[offset] != '{') continue;
    header_bytes = file_bytes - offset;
    break;
  }
  const std::uint64_t checksum =
      XXH3_64bits(bytes.data() + file_bytes - header_bytes, header_bytes);
  std::memcpy(bytes.data(), "KAKEYASN\1\0\0\0\0\0\0\0", 16);
  std::memcpy(bytes.data() + 16, &file_bytes, sizeof(file_bytes));
  std::memcpy(bytes.data() + 24, &header_bytes, sizeof(header_bytes));
  std::memcpy(bytes.data() + 32, &checksum, sizeof(checksum));
  std::memset(bytes.data() + 40, 0, 24);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_everything(data, size);
  if (size < 64) return 0;
  std::vector<std::uint8_t> bytes(data, data + size);
  make_frame_right(bytes);
  read_everything(bytes.data(), bytes.size());
  return 0;
}
