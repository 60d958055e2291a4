#include "runtime/prefix_files.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "base/status.h"

namespace kakeya {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

Status PrefixFiles::access(Access what) const {
  return before_access_ ? before_access_(what) : Status();
}

Status PrefixFiles::start() {
  KAKEYA_TRY(access(Access::kLook));
  std::error_code failure;
  std::filesystem::create_directories(dir(), failure);
  if (failure) {
    return error(StatusCode::kUnavailable, "{}: the folder cannot be made: {}", dir(),
                 failure.message());
  }
  KAKEYA_TRY(look());
  shrink(limit_, {});
  return {};
}

Status PrefixFiles::look() {
  KAKEYA_TRY(access(Access::kLook));
  std::uint64_t begun = 0;
  {
    const std::lock_guard lock(mutex_);
    begun = clock_;
  }
  KAKEYA_ASSIGN_OR_RETURN(PrefixFolder::Listing listing, folder_.list());
  if (listing.partial_bytes > 0) {
    folder_.remove_abandoned();
    KAKEYA_ASSIGN_OR_RETURN(listing, folder_.list());
  }
  std::vector<PrefixName> fresh;
  {
    const std::lock_guard lock(mutex_);
    std::unordered_set<PrefixName, HashPrefixName> present(listing.names.begin(),
                                                           listing.names.end());
    std::vector<PrefixName> gone;
    for (const auto& [name, file] : files_) {
      if (present.erase(name) == 0 && file.added <= begun) gone.push_back(name);
    }
    for (const PrefixName& name : gone) forget(name);
    fresh.assign(present.begin(), present.end());
    partial_bytes_ = listing.partial_bytes;
  }
  std::vector<File> found;
  std::size_t unused = 0;
  std::optional<Error> first_why;
  for (const PrefixName& name : fresh) {
    std::optional<Error> why;
    const auto file = folder_.look_at(name, why);
    if (!file) continue;
    found.push_back(*file);
    if (why && unused++ == 0) first_why = why;
  }
  if (unused > 0) {
    note(fmt::format("{}: {} files of the prompt cache are not used, the first one for this: {}",
                     dir(), unused, first_why->message()));
  }
  const auto age = [](const File& file) {
    return std::tuple(file.time, file.name.high, file.name.low);
  };
  std::ranges::sort(found, {}, age);
  const std::lock_guard lock(mutex_);
  for (const File& file : found) {
    if (!files_.contains(file.name)) add(file);
  }
  // A parent is as young as its youngest child.
  for (const File& file : found) use_chain(file.name);
  return {};
}

bool PrefixFiles::is_look_due() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::steady_clock::now() >= next_look_;
}

void PrefixFiles::look_again() {
  namespace fs = std::filesystem;
  constexpr std::chrono::seconds kEvery(1);
  const auto now = std::chrono::steady_clock::now();
  fs::file_time_type seen;
  {
    const std::lock_guard lock(mutex_);
    next_look_ = now + kEvery;
    seen = seen_;
  }
  if (!access(Access::kLook)) return;
  std::error_code failure;
  const fs::file_time_type changed = fs::last_write_time(dir(), failure);
  if (failure || changed == seen) return;
  // A change within the clock's tick would leave the time as it is.
  const bool is_settled = fs::file_time_type::clock::now() - changed > 2 * kEvery;
  if (!look()) return;
  const std::lock_guard lock(mutex_);
  seen_ = is_settled ? changed : fs::file_time_type();
}

std::vector<PrefixFiles::Start> PrefixFiles::find(std::uint64_t mode,
                                                  std::span<const TokenId> tokens,
                                                  Position least,
                                                  Position most) const {
  std::vector<Start> found;
  const std::lock_guard lock(mutex_);
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
  if (found == files_.end() || found->second.kind != Kind::kEntry) return std::nullopt;
  return found->second;
}

Status PrefixFiles::read(const File& file,
                         const SnapshotKey& key,
                         std::int64_t most_tokens,
                         const PrefixFolder::Sink& sink) const {
  KAKEYA_TRY(access(Access::kRead));
  return folder_.read(
      file, key, most_tokens,
      {.begin = sink.begin, .append = [&](std::span<const std::byte> rows) -> Status {
         KAKEYA_TRY(access(Access::kRead));
         return sink.append(rows);
       }});
}

Status PrefixFiles::write(File file,
                          const SnapshotKey& key,
                          std::span<const TokenId> tokens,
                          std::uint64_t row_bytes,
                          const Fetch& fetch,
                          const std::function<Status()>& read_all) {
  const PrefixName& parent = file.record.parent;
  const std::uint64_t need = row_bytes + tokens.size_bytes() + sizeof(PrefixRecord);
  const auto no_room = [&] {
    return error(StatusCode::kResourceExhausted, "{}: a limit of {} bytes has no room for {}",
                 dir(), limit_, need);
  };
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t chain = chain_bytes(parent);
    if (chain > limit_ || need + PrefixFolder::kFrameBytes > limit_ - chain) return no_room();
  }
  bool is_read = false;
  const auto note_read = [&] {
    is_read = true;
    return read_all();
  };
  while (true) {
    // Others see how large it will be, as this sees theirs.
    auto writer = SnapshotWriter::create(folder_.path_of(file.name), need);
    Status done = writer ? look() : Status(Unexpected(writer.error()));
    if (done && !shrink(limit_, parent)) return no_room();
    if (done) done = fill(*writer, file.record, key, tokens, row_bytes, fetch, note_read);
    if (done) {
      // Not asked of the file itself: another engine may have deleted it already.
      file.bytes = writer->file_bytes();
      break;
    }
    const bool is_full = done.error().code() == StatusCode::kResourceExhausted;
    if (!is_full || !free_room(need + PrefixFolder::kFrameBytes, parent) || is_read) return done;
  }
  file.time = std::filesystem::file_time_type::clock::now();
  const std::lock_guard lock(mutex_);
  if (files_.contains(file.name)) forget(file.name);
  add(file);
  use_chain(file.name);
  return {};
}

Status PrefixFiles::fill(SnapshotWriter& writer,
                         const PrefixRecord& record,
                         const SnapshotKey& key,
                         std::span<const TokenId> tokens,
                         std::uint64_t row_bytes,
                         const Fetch& fetch,
                         const std::function<Status()>& read_all) const {
  KAKEYA_TRY(writer.add("entry", std::as_bytes(std::span(&record, 1))));
  KAKEYA_TRY(writer.add("tokens", std::as_bytes(tokens)));
  KAKEYA_TRY(writer.begin("rows"));
  std::vector<std::byte> piece;
  for (std::uint64_t done = 0; done < row_bytes; done += piece.size()) {
    piece.resize(std::min<std::uint64_t>(row_bytes - done, kPieceBytes));
    KAKEYA_TRY(fetch(done, piece));
    KAKEYA_TRY(access(Access::kWrite));
    KAKEYA_TRY(writer.append(piece));
  }
  KAKEYA_TRY(writer.end());
  KAKEYA_TRY(read_all());
  return writer.finish(folder_.key_of(key));
}

void PrefixFiles::add(File file) {
  file.used = file.added = ++clock_;
  bytes_ += file.bytes;
  by_use_.emplace(turn_of(file), file.name);
  if (file.kind == Kind::kEntry) {
    if (!file.record.parent.is_none()) ++children_[file.record.parent];
    starts_[{file.mode, file.record.length}].emplace(file.record.text_checksum, file.name);
    starts_[{file.mode, file.record.length - 1}].emplace(file.record.shorter_checksum, file.name);
  }
  files_.emplace(file.name, std::move(file));
}

void PrefixFiles::forget(const PrefixName& name) {
  const File file = files_.at(name);
  files_.erase(name);
  by_use_.erase(turn_of(file));
  bytes_ -= file.bytes;
  if (file.kind != Kind::kEntry) return;
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

std::vector<const PrefixFiles::File*> PrefixFiles::chain_of(const PrefixName& name) const {
  std::vector<const File*> chain;
  PrefixName next = name;
  while (!next.is_none()) {
    const auto found = files_.find(next);
    if (found == files_.end()) break;
    const File& file = found->second;
    // One that does not get shorter is no chain of this program.
    if (!chain.empty() && file.record.begin >= chain.back()->record.begin) break;
    chain.push_back(&file);
    next = file.record.parent;
  }
  return chain;
}

std::uint64_t PrefixFiles::chain_bytes(const PrefixName& name) const {
  std::uint64_t bytes = 0;
  for (const File* file : chain_of(name)) bytes += file->bytes;
  return bytes;
}

void PrefixFiles::use_chain(const PrefixName& name) {
  for (const File* part : chain_of(name)) {
    File& file = files_.at(part->name);
    by_use_.erase(turn_of(file));
    file.used = ++clock_;
    by_use_.emplace(turn_of(file), file.name);
  }
}

void PrefixFiles::use(const PrefixName& name) {
  const auto now = std::filesystem::file_time_type::clock::now();
  {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(name);
    if (found == files_.end()) return;
    found->second.time = now;
    use_chain(name);
  }
  if (!access(Access::kUse)) return;
  std::error_code ignored;  // then it counts as older at the next start
  std::filesystem::last_write_time(folder_.path_of(name), now, ignored);
}

std::optional<PrefixFiles::File> PrefixFiles::oldest_but(const PrefixName& parent) {
  use_chain(parent);
  if (by_use_.empty()) return std::nullopt;
  const File& oldest = files_.at(by_use_.begin()->second);
  // The chain was used last, so nothing else is left.
  const std::vector<const File*> chain = chain_of(parent);
  if (oldest.is_stuck || std::ranges::find(chain, &oldest) != chain.end()) return std::nullopt;
  return oldest;
}

bool PrefixFiles::shrink(std::uint64_t most, const PrefixName& parent) {
  while (true) {
    std::optional<File> oldest;
    {
      const std::lock_guard lock(mutex_);
      if (all_bytes() <= most && files_.size() <= kMostFiles) return true;
      oldest = oldest_but(parent);
    }
    if (!oldest) return false;
    give_up(*oldest);
  }
}

bool PrefixFiles::free_room(std::uint64_t bytes, const PrefixName& parent) {
  std::uint64_t most = 0;
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ - chain_bytes(parent) < bytes) return false;
    most = all_bytes() - bytes;
  }
  return shrink(most, parent);
}

void PrefixFiles::give_up(const File& file) {
  (void)access(Access::kDelete);
  std::error_code failure;
  const auto time = std::filesystem::last_write_time(folder_.path_of(file.name), failure);
  if (!failure && time > file.time) {
    std::optional<Error> ignored;
    std::optional<File> now = folder_.look_at(file.name, ignored);
    const std::lock_guard lock(mutex_);
    if (files_.contains(file.name)) forget(file.name);
    if (!now) return;
    add(*now);
    use_chain(file.name);
    return;
  }
  std::filesystem::remove(folder_.path_of(file.name), failure);
  if (failure)
    note(fmt::format("{}: cannot be deleted: {}", folder_.path_of(file.name), failure.message()));
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(file.name);
  if (found == files_.end()) return;
  forget(file.name);
  if (!failure) return;
  File stuck = file;
  stuck.is_stuck = true;
  add(stuck);
}

std::uint64_t PrefixFiles::remove(const PrefixName& name) {
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(name);
    if (found == files_.end() || children_.contains(name)) return 0;
    bytes = found->second.bytes;
    forget(name);
  }
  (void)access(Access::kDelete);
  std::error_code failure;
  std::filesystem::remove(folder_.path_of(name), failure);
  if (!failure) return bytes;
  note(fmt::format("{}: cannot be deleted: {}", folder_.path_of(name), failure.message()));
  return 0;
}

void PrefixFiles::leave(const PrefixName& name, const Error& why) {
  // Another engine may have deleted it.
  const bool is_gone = why.code() == StatusCode::kNotFound;
  if (!is_gone) note("a file of the prompt cache is not used: " + why.message());
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(name);
  if (found == files_.end()) return;
  File file = found->second;
  forget(name);
  if (is_gone) return;
  file.kind = why.code() == StatusCode::kDataLoss ? Kind::kDamaged : Kind::kForeign;
  add(file);
}

void PrefixFiles::note(const std::string& text) const {
  const std::lock_guard lock(note_mutex_);
  if (note_) note_(text);
}

void PrefixFiles::silence() {
  const std::lock_guard lock(note_mutex_);
  note_ = nullptr;
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
