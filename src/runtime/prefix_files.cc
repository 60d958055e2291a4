#include "runtime/prefix_files.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/status.h"

namespace kakeya {
namespace {

static_assert(std::endian::native == std::endian::little, "records are copied as they are");

// The version of the sections: another layout is another one.
constexpr const char* kPrefixVersion = "1";
constexpr const char* kExtension = ".prefix";
// Frame and header of a file, at the most.
constexpr std::uint64_t kFrameBytes = 8192;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

std::string text_of(const PrefixName& name) {
  return fmt::format("{:016x}{:016x}", name.high, name.low);
}

std::uint64_t mode_of_key(const SnapshotKey& key) {
  std::string all;
  for (const auto& [name, value] : key)
    all += fmt::format("{}:{}{}:{}", name.size(), name, value.size(), value);
  return XXH3_64bits(all.data(), all.size());
}

// Numbers that no text has make positions that nobody can compute with.
bool is_possible(const PrefixRecord& record) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::array all = {record.length,           record.begin,
                          record.target_written,   record.features_length,
                          record.features_written, record.context_length,
                          record.context_written,  record.waiting_taps,
                          record.rows_begin[0],    record.rows_begin[1],
                          record.rows_begin[2]};
  const bool in_range =
      std::ranges::all_of(all, [](std::int64_t x) { return x >= 0 && x <= kMost; });
  return in_range && record.begin < record.length && (record.begin > 0) == !record.parent.is_none();
}

// The entries' files in a folder, in no order.
std::vector<std::filesystem::path> prefix_paths(const std::string& dir, std::error_code& failure) {
  std::vector<std::filesystem::path> paths;
  std::filesystem::directory_iterator entries(dir, failure);
  for (; !failure && entries != std::filesystem::directory_iterator(); entries.increment(failure)) {
    if (entries->path().extension() == kExtension) paths.push_back(entries->path());
  }
  return paths;
}

}  // namespace

std::uint64_t text_checksum(std::span<const TokenId> tokens) {
  return XXH3_64bits(tokens.data(), tokens.size_bytes());
}

Result<std::unique_ptr<PrefixFiles>> PrefixFiles::open(
    const std::string& dir,
    std::uint64_t limit_bytes,
    std::string tables,
    std::function<void(const std::string&)> note) {
  std::unique_ptr<PrefixFiles> files(
      new PrefixFiles(dir, limit_bytes, std::move(tables), std::move(note)));
  std::error_code failure;
  std::filesystem::create_directories(dir, failure);
  if (failure) {
    return error(StatusCode::kUnavailable, "{}: the folder cannot be made: {}", dir,
                 failure.message());
  }
  KAKEYA_TRY(files->scan());
  return files;
}

Status PrefixFiles::scan() {
  AtomicFile::remove_abandoned(dir_ + "/any" + kExtension, AtomicFile::Names::kExtension);
  std::error_code failure;
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> paths;
  for (const auto& path : prefix_paths(dir_, failure)) {
    std::error_code ignored;  // a file that went away is found out when it is read
    paths.emplace_back(std::filesystem::last_write_time(path, ignored), path.string());
  }
  if (failure) return error(StatusCode::kUnavailable, "{}: {}", dir_, failure.message());
  std::ranges::sort(paths);
  std::size_t left = paths.size() > kMostFiles ? paths.size() - kMostFiles : 0;
  paths.erase(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(left));
  std::string why = left > 0 ? fmt::format("more than {} files", kMostFiles) : "";
  for (const auto& [unused, path] : paths) {
    const auto file = read_header(path);
    if (file) {
      add(*file);
      continue;
    }
    left_.insert(path);
    if (left++ == 0) why = file.error().message();
  }
  if (left > 0) {
    note(fmt::format("{}: {} files of the prompt cache are left alone, the first one for this: {}",
                     dir_, left, why));
  }
  // A parent is as young as its youngest child.
  std::vector<PrefixName> order;
  for (const auto& [unused, name] : by_use_) order.push_back(name);
  for (const PrefixName& name : order) use_chain(name);
  make_room(0, {});
  return {};
}

void PrefixFiles::look_again() {
  namespace fs = std::filesystem;
  constexpr std::chrono::seconds kEvery(1);
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kEvery;
  std::error_code failure;
  const fs::file_time_type changed = fs::last_write_time(dir_, failure);
  if (failure || changed == seen_) return;
  // A change within the clock's tick would leave the time as it is.
  const bool is_settled = fs::file_time_type::clock::now() - changed > 2 * kEvery;
  const std::vector<fs::path> paths = prefix_paths(dir_, failure);
  if (failure) return;
  take_listing(paths);
  seen_ = is_settled ? changed : fs::file_time_type();
}

void PrefixFiles::take_listing(const std::vector<std::filesystem::path>& paths) {
  std::unordered_set<std::string> present;
  for (const auto& path : paths) present.insert(path.stem().string());
  std::vector<PrefixName> gone;
  for (const auto& [name, unused] : files_) {
    if (present.erase(text_of(name)) == 0) gone.push_back(name);
  }
  for (const PrefixName& name : gone) forget(name);
  for (const std::string& stem : present) {
    const std::string path = dir_ + "/" + stem + kExtension;
    if (files_.size() >= kMostFiles || left_.contains(path)) continue;
    const auto file = read_header(path);
    if (file) {
      add(*file);
    } else if (file.error().code() != StatusCode::kNotFound) {
      left_.insert(path);
      note("a file of the prompt cache is not used: " + file.error().message());
    }
  }
}

Result<PrefixFiles::File> PrefixFiles::read_header(const std::string& path) const {
  KAKEYA_ASSIGN_OR_RETURN(SnapshotFile snapshot, SnapshotFile::open(path));
  const auto version = snapshot.key().find("prefix");
  if (version == snapshot.key().end() || version->second != kPrefixVersion) {
    return error(StatusCode::kUnimplemented, "{}: expected key prefix \"{}\", got another", path,
                 kPrefixVersion);
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto bytes, snapshot.section("entry"));
  File file;
  if (bytes.size() != sizeof(PrefixRecord)) {
    return data_loss("{}: section entry: expected {} bytes, got {}", path, sizeof(PrefixRecord),
                     bytes.size());
  }
  std::memcpy(&file.record, bytes.data(), sizeof(PrefixRecord));
  file.mode = mode_of_key(snapshot.key());
  file.name = name_of(file.mode, file.record);
  if (!is_possible(file.record) || path != path_of(file.name)) {
    return data_loss("{}: section entry: expected that of this name, got another", path);
  }
  file.bytes = snapshot.file_bytes();
  return file;
}

SnapshotKey PrefixFiles::key_of(const SnapshotKey& key) const {
  SnapshotKey all = key;
  all["tables"] = tables_;
  all["prefix"] = kPrefixVersion;
  return all;
}

std::uint64_t PrefixFiles::mode_of(const SnapshotKey& key) const {
  return mode_of_key(key_of(key));
}

PrefixName PrefixFiles::name_of(std::uint64_t mode, const PrefixRecord& record) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(&record, sizeof(record), mode);
  return {hash.high64, hash.low64};
}

std::string PrefixFiles::path_of(const PrefixName& name) const {
  return dir_ + "/" + text_of(name) + kExtension;
}

std::vector<PrefixFiles::Start> PrefixFiles::find(std::uint64_t mode,
                                                  std::span<const TokenId> tokens,
                                                  Position least,
                                                  Position most) {
  std::vector<Start> found;
  const std::lock_guard lock(mutex_);
  look_again();
  auto place = starts_.lower_bound({mode, least});
  if (place == starts_.end()) return found;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::size_t done = 0;
  for (; place != starts_.end() && place->first.first == mode && place->first.second <= most;
       ++place) {
    const auto length = static_cast<std::size_t>(place->first.second);
    const auto next = tokens.subspan(done, length - done);
    XXH3_64bits_update(state.get(), next.data(), next.size_bytes());
    done = length;
    const auto [begin, end] = place->second.equal_range(XXH3_64bits_digest(state.get()));
    for (auto it = begin; it != end; ++it) found.push_back({it->second, place->first.second});
  }
  std::ranges::reverse(found);
  return found;
}

std::optional<PrefixFiles::File> PrefixFiles::file(const PrefixName& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(name);
  if (found == files_.end()) return std::nullopt;
  return found->second;
}

Result<PrefixFiles::Contents> PrefixFiles::read(const File& file, const SnapshotKey& key) const {
  KAKEYA_ASSIGN_OR_RETURN(SnapshotFile snapshot, SnapshotFile::open(path_of(file.name)));
  KAKEYA_TRY(snapshot.check_key(key_of(key)));
  KAKEYA_ASSIGN_OR_RETURN(const auto record, snapshot.section("entry"));
  if (record.size() != sizeof(PrefixRecord) ||
      std::memcmp(record.data(), &file.record, sizeof(PrefixRecord)) != 0) {
    return data_loss("{}: section entry: expected that of this name, got another", snapshot.path());
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto tokens, snapshot.section("tokens"));
  const auto count = static_cast<std::size_t>(file.record.length - file.record.begin);
  if (tokens.size() != count * sizeof(TokenId)) {
    return data_loss("{}: section tokens: expected {} bytes, got {}", snapshot.path(),
                     count * sizeof(TokenId), tokens.size());
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto rows, snapshot.section("rows"));
  return Contents{
      std::move(snapshot), {reinterpret_cast<const TokenId*>(tokens.data()), count}, rows};
}

Status PrefixFiles::write(File file,
                          const SnapshotKey& key,
                          std::span<const TokenId> tokens,
                          std::span<const std::byte> rows,
                          const std::function<bool()>& goes_on,
                          const std::function<void()>& read_all) {
  {
    const std::lock_guard lock(mutex_);
    if (!make_room(rows.size() + tokens.size_bytes() + kFrameBytes, file.record.parent)) {
      return error(StatusCode::kResourceExhausted, "{}: a limit of {} bytes has no room for {}",
                   dir_, limit_, rows.size());
    }
  }
  const std::string path = path_of(file.name);
  KAKEYA_ASSIGN_OR_RETURN(SnapshotWriter writer, SnapshotWriter::create(path));
  KAKEYA_TRY(writer.add("entry", std::as_bytes(std::span(&file.record, 1))));
  KAKEYA_TRY(writer.add("tokens", std::as_bytes(tokens)));
  KAKEYA_TRY(writer.begin("rows"));
  while (!rows.empty()) {
    if (!goes_on()) return error(StatusCode::kCancelled, "{}: not written", path);
    const auto piece = rows.first(std::min(rows.size(), kPieceBytes));
    KAKEYA_TRY(writer.append(piece));
    rows = rows.subspan(piece.size());
  }
  KAKEYA_TRY(writer.end());
  read_all();
  KAKEYA_TRY(writer.finish(key_of(key)));
  // Not asked of the file itself: another engine may have deleted it already.
  file.bytes = writer.file_bytes();
  const std::lock_guard lock(mutex_);
  add(file);
  use_chain(file.name);
  return {};
}

void PrefixFiles::add(const File& file) {
  if (!files_.emplace(file.name, file).second) return;
  File& added = files_.at(file.name);
  added.used = ++clock_;
  by_use_.emplace(added.used, file.name);
  bytes_ += file.bytes;
  if (!file.record.parent.is_none()) ++children_[file.record.parent];
  starts_[{file.mode, file.record.length}].emplace(file.record.text_checksum, file.name);
  starts_[{file.mode, file.record.length - 1}].emplace(file.record.shorter_checksum, file.name);
}

void PrefixFiles::forget(const PrefixName& name) {
  const File file = files_.at(name);
  files_.erase(name);
  by_use_.erase(file.used);
  bytes_ -= file.bytes;
  if (const auto parent = children_.find(file.record.parent);
      parent != children_.end() && --parent->second == 0) {
    children_.erase(parent);
  }
  for (const Position length : {file.record.length, file.record.length - 1}) {
    const auto place = starts_.find({file.mode, length});
    std::erase_if(place->second, [&](const auto& start) { return start.second == name; });
    if (place->second.empty()) starts_.erase(place);
  }
}

void PrefixFiles::use_chain(const PrefixName& name) {
  std::int64_t begin = 0;
  for (auto found = files_.find(name); found != files_.end();
       found = files_.find(found->second.record.parent)) {
    File& file = found->second;
    if (found->first != name && file.record.begin >= begin) return;  // no chain of this program
    begin = file.record.begin;
    by_use_.erase(file.used);
    file.used = ++clock_;
    by_use_.emplace(file.used, file.name);
  }
}

void PrefixFiles::use(const PrefixName& name) {
  const std::lock_guard lock(mutex_);
  use_chain(name);
  std::error_code ignored;  // then it counts as older at the next start
  std::filesystem::last_write_time(path_of(name), std::filesystem::file_time_type::clock::now(),
                                   ignored);
}

bool PrefixFiles::make_room(std::uint64_t bytes, const PrefixName& parent) {
  if (bytes > limit_) return false;
  use_chain(parent);
  while (bytes_ > limit_ - bytes) {
    const PrefixName oldest = by_use_.begin()->second;
    // The chain was used last, so nothing else is left.
    std::uint64_t chain = 0;
    std::size_t files = 0;
    for (auto found = files_.find(parent); found != files_.end() && files < files_.size();
         found = files_.find(found->second.record.parent)) {
      chain += found->second.bytes;
      ++files;
    }
    if (chain == bytes_) return false;
    std::error_code failure;
    std::filesystem::remove(path_of(oldest), failure);
    forget(oldest);
    if (failure) note(fmt::format("{}: cannot be deleted: {}", path_of(oldest), failure.message()));
  }
  return true;
}

std::uint64_t PrefixFiles::remove(const PrefixName& name) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(name);
  if (found == files_.end() || children_.contains(name)) return 0;
  const std::uint64_t bytes = found->second.bytes;
  std::error_code failure;
  std::filesystem::remove(path_of(name), failure);
  forget(name);
  if (!failure) return bytes;
  note(fmt::format("{}: cannot be deleted: {}", path_of(name), failure.message()));
  return 0;
}

void PrefixFiles::leave(const PrefixName& name, const Error& why) {
  // Another engine may have deleted it.
  if (why.code() != StatusCode::kNotFound) {
    note("a file of the prompt cache is not used: " + why.message());
  }
  const std::lock_guard lock(mutex_);
  if (files_.contains(name)) forget(name);
  if (why.code() != StatusCode::kNotFound) left_.insert(path_of(name));
}

void PrefixFiles::note(const std::string& text) const {
  if (note_) note_(text);
}

std::uint64_t PrefixFiles::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::int64_t PrefixFiles::num_files() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(files_);
}

}  // namespace kakeya
