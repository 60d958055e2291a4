// The part of the prompt cache that writes entries to files and brings them back.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "runtime/prompt_cache.h"

namespace kakeya {
namespace {

SessionExtent extent_of(const PrefixRecord& record) {
  return {.target = {record.length, record.target_written},
          .drafter = {{record.context_length, record.context_written}, record.waiting_taps}};
}

std::span<const TokenId> first(std::span<const TokenId> tokens, Position count) {
  return tokens.first(static_cast<std::size_t>(count));
}

}  // namespace

PrefixRecord PromptCache::record_of(const Entry& entry, std::span<const TokenId> tokens) {
  const SessionExtent& extent = entry.rows.extent;
  const Entry* const parent = parent_of(entry);
  return {.length = entry.length(),
          .begin = entry.begin,
          .target_written = extent.target.written,
          .context_length = extent.drafter.context.length,
          .context_written = extent.drafter.context.written,
          .waiting_taps = extent.drafter.waiting,
          .rows_begin = entry.rows.begin,
          .parent = parent == nullptr ? PrefixName{} : parent->name,
          .text_checksum = text_checksum(tokens),
          .shorter_checksum = text_checksum(tokens.first(tokens.size() - 1))};
}

std::vector<TokenId> PromptCache::text_of(const Entry& entry) {
  std::vector<TokenId> text(static_cast<std::size_t>(entry.length()));
  Position end = entry.length();
  for (const Entry* part = &entry; part != nullptr; part = parent_of(*part)) {
    KAKEYA_CHECK(part->begin <= end);
    std::ranges::copy(first(part->tokens, end - part->begin), text.begin() + part->begin);
    end = part->begin;
  }
  return text;
}

void PromptCache::name_entry(Entry& entry, std::span<const TokenId> tokens) {
  if (files_ == nullptr) return;
  entry.name = PrefixFolder::name_of(entry.mode->in_files, record_of(entry, tokens));
  names_.insert_or_assign(entry.name, &entry);
  if (files_->known().file(entry.name)) return;
  entry.waits = true;
  to_write_.push_back(entry.name);
  has_work_.notify_all();
}

void PromptCache::unname(const Entry& entry) {
  const auto found = names_.find(entry.name);
  if (found != names_.end() && found->second == &entry) names_.erase(found);
  if (entry.waits) ++dropped_;
}

void PromptCache::write_entries() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [&] { return closes_ || !to_write_.empty(); });
    if (to_write_.empty()) return;
    const PrefixName name = to_write_.front();
    to_write_.pop_front();
    const auto found = names_.find(name);
    if (found != names_.end() && found->second->waits) write_entry(lock, *found->second);
    copied_.notify_all();
  }
}

void PromptCache::write_entry(std::unique_lock<std::mutex>& lock, Entry& entry) {
  const SnapshotKey key = entry.mode->key;
  const PrefixFiles::File file{
      .name = entry.name, .mode = entry.mode->in_files, .record = record_of(entry, text_of(entry))};
  gives_way_ = false;
  writing_ = entry.name;
  begin_copy(&entry);
  writing_holds_ = true;
  const auto release_entry = [&] {
    entry.waits = false;
    writing_holds_ = false;
    end_copy(&entry);
  };
  const auto lock_and_release = [&] {
    const std::lock_guard again(mutex_);
    release_entry();
  };
  const std::span<const std::byte> rows(entry.rows.memory.data(), entry.row_bytes);
  lock.unlock();
  const Status done = files_->write(
      file, key, entry.tokens, rows, [&] { return !gives_way_ || !writing_holds_; },
      lock_and_release);
  lock.lock();
  if (writing_holds_) release_entry();
  writing_ = {};
  if (!done) {
    ++dropped_;
    const StatusCode code = done.error().code();
    const bool expected = code == StatusCode::kCancelled ||
                          code == StatusCode::kResourceExhausted ||
                          code == StatusCode::kDeadlineExceeded;  // it is noted already
    if (!expected && !std::exchange(disk_refused_, true)) {
      files_->known().note("the prompt cache goes on without a file: " + done.error().message());
    }
    return;
  }
  ++written_;
}

void PromptCache::stop_writing(std::unique_lock<std::mutex>& lock) {
  gives_way_ = true;
  copied_.wait(lock, [&, name = writing_] { return writing_ != name || !writing_holds_; });
}

void PromptCache::flush_files() {
  std::unique_lock lock(mutex_);
  copied_.wait(lock, [&] { return to_write_.empty() && writing_.is_none(); });
}

void PromptCache::note_run(std::int64_t rows, double seconds) {
  const std::lock_guard lock(mutex_);
  run_rows_ += static_cast<double>(rows);
  run_seconds_ += seconds;
}

bool PromptCache::reading_pays(std::uint64_t bytes, Position tokens) const {
  if (read_seconds_ <= 0.0 || run_rows_ <= 0.0) return true;
  const double reading = static_cast<double>(bytes) * read_seconds_ / read_bytes_;
  const double running = static_cast<double>(tokens) * run_seconds_ / run_rows_;
  const std::chrono::duration<double> most = files_->patience().reader;
  return reading < std::min(running, most.count());
}

std::vector<PrefixFiles::File> PromptCache::chain_of(PrefixName name) const {
  std::vector<PrefixFiles::File> chain;
  for (; !name.is_none() && !names_.contains(name); name = chain.back().record.parent) {
    auto file = files_->known().file(name);
    // A chain that does not get shorter is none of ours, and might have no end.
    if (!file || (!chain.empty() && file->record.begin >= chain.back().record.begin)) return {};
    chain.push_back(*file);
  }
  return chain;
}

void PromptCache::read_files(Cursor& cursor, const SessionParts& parts) {
  const std::span<const TokenId> tokens = parts.timeline->tokens();
  const Position held = parts.timeline->position();
  const Position most = std::ssize(tokens) - 1;
  const auto deadline = files_->deadline();
  files_->look_again(deadline);
  std::unique_lock lock(mutex_);
  Mode& mode = *cursor.mode_;
  const Position have = std::max(held, find(cursor, parts, tokens, held + kLeastGain, most).length);
  for (const auto& start : files_->known().find(mode.in_files, tokens, have + kLeastGain, most)) {
    std::vector<PrefixFiles::File> chain = chain_of(start.name);
    if (chain.empty()) continue;
    std::uint64_t bytes = 0;
    for (const auto& file : chain) bytes += file.bytes;
    if (!reading_pays(bytes, start.length - have)) return;
    lock.unlock();
    const Stopwatch watch;
    Status done;
    for (; done && !chain.empty(); chain.pop_back()) {
      done = read_file(mode, parts, chain.back(), deadline);
    }
    if (!done && done.error().code() == StatusCode::kDeadlineExceeded) return;
    lock.lock();
    if (!done) continue;
    read_bytes_ += static_cast<double>(bytes);
    read_seconds_ += watch.seconds();
    ++file_hits_;
    file_tokens_ += start.length - have;
    lock.unlock();
    files_->use(start.name, deadline);
    return;
  }
}

Status PromptCache::check_contents(const SessionParts& parts,
                                   const PrefixFiles::File& file,
                                   std::span<const TokenId> text,
                                   const Entry* parent,
                                   std::uint64_t bytes,
                                   SessionRows& rows) const {
  const PrefixRecord& record = file.record;
  const SessionExtent extent = extent_of(record);
  const auto wrong = [&](const char* what) {
    return data_loss("section entry: no session of this kind has such {}", what);
  };
  if (text_checksum(text) != record.text_checksum) return wrong("tokens");
  KAKEYA_TRY(parts.timeline->check(text));
  if (shortened(parts, extent, record.length) != extent) return wrong("positions");
  if (parent == nullptr) {
    rows = plan_rows(parts, extent, nullptr, 0);
  } else {
    const auto next = static_cast<std::size_t>(record.begin - parent->begin);
    const bool joins = record.begin > parent->begin && record.begin <= parent->length() &&
                       (next == parent->tokens.size() ||
                        parent->tokens[next] != text[static_cast<std::size_t>(record.begin)]) &&
                       shortened(parts, parent->rows.extent, record.begin).has_value();
    if (!joins) return wrong("a parent");
    rows = plan_rows(parts, extent, &parent->rows, record.begin);
    if (rows.parent == nullptr) return wrong("a parent");
  }
  if (rows.extent != extent || rows.begin != record.rows_begin) return wrong("rows");
  if (rows_bytes(parts, rows) != bytes) return wrong("a size of rows");
  return {};
}

Status PromptCache::begin_reading(const SessionParts& parts,
                                  std::span<const TokenId> tokens,
                                  std::uint64_t row_bytes,
                                  Incoming& incoming) {
  const PrefixRecord& record = incoming.file.record;
  const std::lock_guard lock(mutex_);
  if (!record.parent.is_none()) {
    const auto found = names_.find(record.parent);
    if (found == names_.end()) {
      return error(StatusCode::kResourceExhausted, "the file's parent was given up");
    }
    incoming.parent = found->second;
    incoming.text = text_of(*incoming.parent);
    if (std::ssize(incoming.text) < record.begin) {
      return data_loss("section entry: no parent is so short");
    }
    incoming.text.resize(static_cast<std::size_t>(record.begin));
  }
  incoming.text.insert(incoming.text.end(), tokens.begin(), tokens.end());
  incoming.row_bytes = row_bytes;
  KAKEYA_TRY(check_contents(parts, incoming.file, incoming.text, incoming.parent, row_bytes,
                            incoming.rows));
  begin_copy(incoming.parent);
  incoming.memory = allocate(row_bytes, record.length - record.begin, incoming.parent);
  if (!incoming.memory) {
    end_copy(incoming.parent);
    return error(StatusCode::kResourceExhausted, "the cache has no room for a file");
  }
  incoming.rows.memory = std::move(incoming.memory->rows);
  return {};
}

Status PromptCache::read_file(Mode& mode,
                              const SessionParts& parts,
                              const PrefixFiles::File& file,
                              TimedPrefixFiles::Clock::time_point deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (names_.contains(file.name)) return {};  // another session was faster
  }
  Incoming incoming;
  incoming.file = file;
  const PrefixFolder::Sink sink = {.begin =
                                       [&](std::vector<TokenId> tokens, std::uint64_t row_bytes) {
                                         return begin_reading(parts, tokens, row_bytes, incoming);
                                       },
                                   .append = [&](std::span<const std::byte> rows) -> Status {
                                     std::ranges::copy(rows,
                                                       incoming.rows.memory.data() + incoming.done);
                                     incoming.done += rows.size();
                                     return {};
                                   }};
  const Position most = parts.timeline->cache().spec().context;
  const Status done = files_->read(file, mode.key, most, sink, deadline);
  if (!done) {
    // Neither for want of memory nor because the folder gave nothing: it may next time.
    const StatusCode code = done.error().code();
    const bool is_slow = code == StatusCode::kDeadlineExceeded && incoming.done > 0;
    if (is_slow ||
        (code != StatusCode::kDeadlineExceeded && code != StatusCode::kResourceExhausted)) {
      files_->known().leave(file.name, done.error());
    }
  }
  const std::lock_guard lock(mutex_);
  if (!incoming.memory) return done;
  end_copy(incoming.parent);
  if (!done || names_.contains(file.name)) {
    incoming.memory->rows = std::move(incoming.rows.memory);
  } else {
    TokenTree::Cursor place;
    mode.tree.attach(place);
    lookup_cost_ += mode.tree.advance(place, 0, incoming.text);
    Entry& entry = add(mode, place, incoming.text, file.record.begin, std::move(incoming.rows),
                       incoming.row_bytes, incoming.parent, *incoming.memory);
    mode.tree.detach(place);
    name_entry(entry, incoming.text);
  }
  give_back(*incoming.memory);
  return done;
}

void PromptCache::look_up_files(std::uint64_t mode,
                                std::span<const TokenId> tokens,
                                CachedPrefix& prefix) {
  for (const auto& start : files_->known().find(mode, tokens, 1, std::ssize(tokens))) {
    auto file = files_->known().file(start.name);
    if (!file || file->record.length != start.length) continue;  // of a longer text
    if (!names_.contains(start.name) && chain_of(start.name).empty()) continue;
    prefix.tokens = std::max(prefix.tokens, start.length);
    Position begin = start.length;
    while (file && file->record.begin < begin) {
      prefix.disk_bytes += file->bytes;
      begin = file->record.begin;
      file = files_->known().file(file->record.parent);
    }
    return;
  }
}

std::uint64_t PromptCache::forget_files(std::uint64_t mode,
                                        std::span<const TokenId> tokens,
                                        Position keep) {
  std::uint64_t freed = 0;
  for (const auto& start : files_->known().find(mode, tokens, keep + 1, std::ssize(tokens))) {
    const auto file = files_->known().file(start.name);
    if (!file || file->record.length != start.length) continue;  // a longer text
    {
      const std::lock_guard lock(mutex_);
      if (names_.contains(start.name)) return freed;  // other texts need it
    }
    const std::uint64_t bytes = files_->remove(start.name);
    if (bytes == 0) return freed;
    freed += bytes;
  }
  return freed;
}

}  // namespace kakeya
