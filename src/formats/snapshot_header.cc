// The frame of a snapshot file, by reading it piece by piece.
#include <simdjson.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "formats/json_document.h"
#include "formats/printable.h"
#include "formats/snapshot_layout.h"

namespace kakeya {
namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// The preamble, its lengths checked against the file's.
Result<SnapshotPreamble> read_preamble(std::uint64_t file_bytes, const ReadSnapshot& read) {
  if (file_bytes < sizeof(SnapshotPreamble)) {
    return data_loss("expected a snapshot of at least {} bytes, got {}", sizeof(SnapshotPreamble),
                     file_bytes);
  }
  SnapshotPreamble preamble;
  KAKEYA_TRY(read(0, std::as_writable_bytes(std::span(&preamble, 1))));
  if (preamble.magic != kSnapshotMagic) {
    const std::string_view found(preamble.magic.data(), preamble.magic.size());
    return invalid_argument("expected a snapshot, which begins with {}, got \"{}\"",
                            std::string_view(kSnapshotMagic.data(), kSnapshotMagic.size()),
                            printable(found));
  }
  if (preamble.version != kSnapshotVersion) {
    return error(StatusCode::kUnimplemented, "expected snapshot version {}, got {}",
                 kSnapshotVersion, preamble.version);
  }
  if (preamble.zero != 0 || preamble.zeros != decltype(preamble.zeros){}) {
    return data_loss("preamble: expected zeros in the unused bytes, got others");
  }
  if (preamble.file_bytes != file_bytes) {
    return data_loss("expected {} bytes in the file, got {}", preamble.file_bytes, file_bytes);
  }
  const std::uint64_t most =
      std::min<std::uint64_t>(kMaxSnapshotHeaderBytes, file_bytes - sizeof(preamble));
  if (preamble.header_bytes > most) {
    return data_loss("header: expected at most {} bytes, got {}", most, preamble.header_bytes);
  }
  return preamble;
}

// Refuses fields that the format does not know.
Status check_fields(simdjson::dom::object object,
                    std::initializer_list<std::string_view> known,
                    std::string_view where) {
  for (const auto field : object) {
    if (std::find(known.begin(), known.end(), field.key) == known.end()) {
      return invalid_argument("{}: expected the fields {}, got \"{}\"", where,
                              fmt::join(known, ", "), printable(field.key));
    }
  }
  return {};
}

Result<SnapshotKey> read_key(const JsonFields& header) {
  const auto value = header.find("key");
  simdjson::dom::object object;
  if (!value || value->get(object) != simdjson::SUCCESS) {
    return invalid_argument("key: expected an object, got {}",
                            value ? describe(*value) : "nothing");
  }
  SnapshotKey key;
  for (const auto field : object) {
    std::string_view text;
    if (field.value.get(text) != simdjson::SUCCESS) {
      return invalid_argument("key.{}: expected a string, got {}", printable(field.key),
                              describe(field.value));
    }
    key.emplace(field.key, text);
  }
  return key;
}

// Checksums are text in the header: JSON numbers of 64 bits are not safe with every reader.
Result<std::uint64_t> read_checksum(const JsonFields& fields) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, fields.text_or("checksum", ""));
  std::uint64_t value = 0;
  const std::errc code = std::from_chars(text.data(), text.data() + text.size(), value, 16).ec;
  // Only one spelling of each value, so that equal snapshots are equal files.
  if (code != std::errc() || fmt::format("{:016x}", value) != text) {
    return invalid_argument("{}: expected 16 hexadecimal digits, got \"{}\"",
                            fields.name("checksum"), printable(text));
  }
  return value;
}

Result<SnapshotSection> read_section(simdjson::dom::element value, const std::string& where) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return invalid_argument("{}: expected an object, got {}", where, describe(value));
  }
  KAKEYA_TRY(check_fields(object, {"name", "offset", "length", "checksum"}, where));
  const JsonFields fields(object, where + ".");
  SnapshotSection section;
  KAKEYA_ASSIGN_OR_RETURN(section.name, fields.text_or("name", ""));
  if (section.name.empty() || section.name.size() > kMaxSnapshotNameBytes) {
    return invalid_argument("{}: expected 1 to {} bytes, got {}", fields.name("name"),
                            kMaxSnapshotNameBytes, section.name.size());
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t offset, fields.integer("offset", {0, INT64_MAX}));
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t length, fields.integer("length", {0, INT64_MAX}));
  KAKEYA_ASSIGN_OR_RETURN(section.checksum, read_checksum(fields));
  section.offset = static_cast<std::uint64_t>(offset);
  section.length = static_cast<std::uint64_t>(length);
  return section;
}

// Sections cover the bytes from the preamble to the header in order, with less than an alignment
// of zeros between them. Neither overlap nor hole is possible then.
Status check_layout(std::span<const SnapshotSection> sections,
                    std::uint64_t header_offset,
                    const ReadSnapshot& read) {
  std::uint64_t end = sizeof(SnapshotPreamble);
  const auto check_gap = [&](std::uint64_t next, const std::string& what) -> Status {
    if (next != align_snapshot_offset(end) || next > header_offset) {
      return invalid_argument("{}: expected to begin at byte {}, got {}, with the header at {}",
                              what, align_snapshot_offset(end), next, header_offset);
    }
    std::array<std::byte, kSnapshotAlignment> gap = {};
    const auto before = std::span(gap).first(next - end);
    if (!before.empty()) KAKEYA_TRY(read(end, before));
    if (all_zero(before)) return {};
    return data_loss("{}: expected zeros in the {} bytes before it, got others", what, next - end);
  };
  for (const SnapshotSection& section : sections) {
    const std::string what = "section " + printable(section.name);
    KAKEYA_TRY(check_gap(section.offset, what));
    if (section.length > header_offset - section.offset) {
      return invalid_argument("{}: expected at most {} bytes before the header, got {}", what,
                              header_offset - section.offset, section.length);
    }
    end = section.offset + section.length;
  }
  return check_gap(header_offset, "header");
}

Result<SnapshotHeader> parse_header(std::string_view text) {
  SnapshotHeader header;
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(text));
  simdjson::dom::object object;
  if (document.root().get(object) != simdjson::SUCCESS) {
    return invalid_argument("expected a JSON object, got {}", describe(document.root()));
  }
  KAKEYA_TRY(check_fields(object, {"key", "sections"}, "top level"));
  const JsonFields fields(object, "");
  KAKEYA_ASSIGN_OR_RETURN(header.key, read_key(fields));

  const auto list = fields.find("sections");
  simdjson::dom::array array;
  if (!list || list->get(array) != simdjson::SUCCESS) {
    return invalid_argument("sections: expected a list, got {}",
                            list ? describe(*list) : "nothing");
  }
  for (const simdjson::dom::element item : array) {
    if (header.sections.size() == kMaxSnapshotSections) {
      return invalid_argument("sections: expected at most {}, got more", kMaxSnapshotSections);
    }
    KAKEYA_ASSIGN_OR_RETURN(
        SnapshotSection section,
        read_section(item, fmt::format("sections[{}]", header.sections.size())));
    header.sections.push_back(std::move(section));
  }
  std::unordered_set<std::string_view> names;
  for (const SnapshotSection& section : header.sections) {
    if (!names.insert(section.name).second) {
      return invalid_argument("sections: expected each name once, got \"{}\" twice",
                              printable(section.name));
    }
  }
  return header;
}

}  // namespace

std::uint64_t snapshot_checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Result<SnapshotHeader> read_snapshot_header(std::uint64_t file_bytes, const ReadSnapshot& read) {
  KAKEYA_ASSIGN_OR_RETURN(const SnapshotPreamble preamble, read_preamble(file_bytes, read));
  const std::uint64_t header_offset = file_bytes - preamble.header_bytes;
  std::string text(preamble.header_bytes, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text));
  KAKEYA_TRY(read(header_offset, bytes));
  const std::uint64_t checksum = snapshot_checksum(bytes);
  if (checksum != preamble.header_checksum) {
    return data_loss("header: expected checksum {:016x}, got {:016x}", preamble.header_checksum,
                     checksum);
  }
  auto header = parse_header(text);
  if (!header) return Unexpected(header.error().with_context("header"));
  KAKEYA_TRY(check_layout(header->sections, header_offset, read));
  return header;
}

}  // namespace kakeya
