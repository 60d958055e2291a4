// Writing of snapshot files, declared in formats/snapshot_file.h.
#include <simdjson.h>
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status.h"
#include "formats/printable.h"
#include "formats/snapshot_file.h"
#include "formats/snapshot_layout.h"

namespace kakeya {

namespace {

bool is_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

// The header's text; names and values must be valid UTF-8.
std::string header_text(const SnapshotKey& key, std::span<const SnapshotSection> sections) {
  nlohmann::json header = {{"key", nlohmann::json::object()},
                           {"sections", nlohmann::json::array()}};
  for (const auto& [name, value] : key) header["key"][name] = value;
  for (const SnapshotSection& section : sections) {
    header["sections"].push_back({{"name", section.name},
                                  {"offset", section.offset},
                                  {"length", section.length},
                                  {"checksum", fmt::format("{:016x}", section.checksum)}});
  }
  return header.dump();
}

}  // namespace

void SnapshotWriter::FreeState::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

SnapshotWriter::SnapshotWriter(AtomicFile file, ChecksumState state)
    : file_(std::move(file)), state_(std::move(state)), end_(sizeof(SnapshotPreamble)) {}

Result<SnapshotWriter> SnapshotWriter::create(const std::string& path, std::uint64_t reserved) {
  ChecksumState state(XXH3_createState());
  if (!state) {
    return error(StatusCode::kResourceExhausted, "not enough memory to write {}", path);
  }
  KAKEYA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  if (reserved > 0) KAKEYA_TRY(file.reserve(reserved));
  return SnapshotWriter(std::move(file), std::move(state));
}

Status SnapshotWriter::check_turn(bool in_section) const {
  if (!file_.is_open()) {
    return error(StatusCode::kFailedPrecondition, "{} is no longer being written", file_.target());
  }
  if (in_section == in_section_) return {};
  return error(StatusCode::kFailedPrecondition, "{}: expected {} open section, got {}",
               file_.target(), in_section ? "an" : "no",
               in_section_ ? printable(sections_.back().name) : "none");
}

Status SnapshotWriter::check_name(std::string_view name) const {
  if (name.empty() || name.size() > kMaxSnapshotNameBytes || !is_utf8(name)) {
    return invalid_argument("{}: section name: expected 1 to {} bytes of UTF-8, got \"{}\"",
                            file_.target(), kMaxSnapshotNameBytes, printable(name));
  }
  if (sections_.size() == kMaxSnapshotSections) {
    return invalid_argument("{}: expected at most {} sections, got another, \"{}\"", file_.target(),
                            kMaxSnapshotSections, printable(name));
  }
  const auto same = [&](const SnapshotSection& section) { return section.name == name; };
  if (std::any_of(sections_.begin(), sections_.end(), same)) {
    return invalid_argument("{}: expected each section name once, got \"{}\" twice", file_.target(),
                            printable(name));
  }
  return {};
}

Status SnapshotWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  KAKEYA_TRY(begin(name));
  KAKEYA_TRY(append(bytes));
  return end();
}

Status SnapshotWriter::begin(std::string_view name) {
  KAKEYA_TRY(check_turn(false));
  KAKEYA_TRY(check_name(name));
  XXH3_64bits_reset(state_.get());
  end_ = align_snapshot_offset(end_);
  sections_.push_back({.name = std::string(name), .offset = end_});
  in_section_ = true;
  return {};
}

Status SnapshotWriter::append(std::span<const std::byte> bytes) {
  KAKEYA_TRY(check_turn(true));
  KAKEYA_TRY(file_.write_at(end_, bytes));
  if (!bytes.empty()) XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  end_ += bytes.size();
  return {};
}

Status SnapshotWriter::end() {
  KAKEYA_TRY(check_turn(true));
  SnapshotSection& section = sections_.back();
  section.length = end_ - section.offset;
  section.checksum = XXH3_64bits_digest(state_.get());
  in_section_ = false;
  return {};
}

Status SnapshotWriter::finish(const SnapshotKey& key) {
  KAKEYA_TRY(check_turn(false));
  for (const auto& [name, value] : key) {
    if (is_utf8(name) && is_utf8(value)) continue;
    return invalid_argument("{}: key {}: expected valid UTF-8, got \"{}\"", file_.target(),
                            printable(name), printable(value));
  }
  const std::string header = header_text(key, sections_);
  if (header.size() > kMaxSnapshotHeaderBytes) {
    return invalid_argument("{}: header: expected at most {} bytes, got {}", file_.target(),
                            kMaxSnapshotHeaderBytes, header.size());
  }
  const auto header_bytes = std::as_bytes(std::span(header));
  const std::uint64_t header_offset = align_snapshot_offset(end_);
  KAKEYA_TRY(file_.write_at(header_offset, header_bytes));
  SnapshotPreamble preamble;
  preamble.file_bytes = header_offset + header.size();
  preamble.header_bytes = header.size();
  preamble.header_checksum = snapshot_checksum(header_bytes);
  KAKEYA_TRY(file_.write_at(0, std::as_bytes(std::span(&preamble, 1))));
  end_ = preamble.file_bytes;
  return file_.commit();
}

}  // namespace kakeya
