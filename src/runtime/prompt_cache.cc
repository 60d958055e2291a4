#include "runtime/prompt_cache.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/check.h"

namespace kakeya {

PromptCache::PromptCache(std::uint64_t limit_bytes,
                         MemoryBudget& budget,
                         std::unique_ptr<TimedPrefixFiles> files)
    : limit_(limit_bytes), budget_(budget), files_(std::move(files)) {
  budget_.set_reclaimer(this);
  if (files_ != nullptr) writer_ = std::thread([this] { write_entries(); });
}

PromptCache::~PromptCache() {
  budget_.set_reclaimer(nullptr);
  if (writer_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      closes_ = true;
    }
    has_work_.notify_all();
    writer_.join();
  }
  while (evict_oldest()) continue;
}

PromptCache::Cursor::Cursor(PromptCache& cache, const SnapshotKey& key) : cache_(cache) {
  const std::lock_guard lock(cache_.mutex_);
  auto mode = cache_.modes_.find(key);
  if (mode == cache_.modes_.end()) {
    const TimedPrefixFiles* const files = cache_.files_.get();
    const std::uint64_t in_files = files == nullptr ? 0 : files->known().mode_of(key);
    mode = cache_.modes_.try_emplace(key, key, in_files).first;
  }
  mode_ = &mode->second;
  mode_->tree.attach(place_);
}

PromptCache::Cursor::~Cursor() {
  const std::lock_guard lock(cache_.mutex_);
  mode_->tree.detach(place_);
  cache_.remove_if_unused(*mode_);
}

std::uint64_t PromptCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::int64_t PromptCache::num_entries() const {
  const std::lock_guard lock(mutex_);
  return num_entries_;
}

std::uint64_t PromptCache::lookup_cost() const {
  const std::lock_guard lock(mutex_);
  return lookup_cost_;
}

PromptCacheStatistics PromptCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return {.limit_bytes = limit_,
          .bytes = bytes_,
          .entries = num_entries_,
          .lookups = lookups_,
          .hits = hits_,
          .tokens = tokens_,
          .disk_limit_bytes = files_ == nullptr ? 0 : files_->known().limit(),
          .disk_bytes = files_ == nullptr ? 0 : files_->known().bytes(),
          .disk_entries = files_ == nullptr ? 0 : files_->known().num_files(),
          .disk_hits = file_hits_,
          .disk_tokens = file_tokens_,
          .disk_written = written_,
          .disk_dropped = dropped_};
}

PromptCache::Match PromptCache::find(Cursor& cursor,
                                     const SessionParts& parts,
                                     std::span<const TokenId> tokens,
                                     Position least,
                                     Position most) {
  const TokenTree& tree = cursor.mode_->tree;
  lookup_cost_ += tree.advance(cursor.place_, parts.timeline->marked(), tokens);
  parts.timeline->mark(cursor.place_.common);
  Match match{.common = cursor.place_.common};
  // From the last place that would do towards the root: whatever leaves the way at the same place
  // has the same tokens up to there.
  const TokenTree::Node* node = cursor.place_.node;
  const TokenTree::Node* visited = nullptr;
  Position length = std::min(match.common, most);
  while (!tree.is_root(*node) && length >= least) {
    ++lookup_cost_;
    if (length > node->begin) {
      match.entry = find_start(parts, *node, visited, length);
      if (match.entry != nullptr) {
        match.length = length;
        return match;
      }
      visited = node;
    }
    node = node->parent;
    length = std::min(length, node->end);
  }
  return match;
}

PromptCache::Entry* PromptCache::find_start(const SessionParts& parts,
                                            const TokenTree::Node& top,
                                            const TokenTree::Node* except,
                                            Position length) {
  const KvCacheSpec& target = parts.timeline->cache().spec();
  bool below = true;
  for (const TokenTree::Node* node = &top; node != nullptr;
       node = TokenTree::following(*node, top, below)) {
    ++lookup_cost_;
    // All entries below have written the rows up to the node's end at least.
    below = node != except && target.can_hold({.length = length, .written = node->end});
    if (!below) continue;
    for (TokenTree::Text* text = node->texts; text != nullptr; text = text->next) {
      ++lookup_cost_;
      auto* const entry = static_cast<Entry*>(text);
      if (shortened(parts, entry->rows.extent, length)) return entry;
    }
  }
  return nullptr;
}

PromptCache::Start PromptCache::take(Cursor& cursor, const SessionParts& parts) {
  const std::span<const TokenId> tokens = parts.timeline->tokens();
  const Position held = parts.timeline->position();
  const Position most = std::ssize(tokens) - 1;
  if (most < held + kLeastGain) return {};
  if (files_ != nullptr) read_files(cursor, parts);
  std::unique_lock lock(mutex_);
  ++lookups_;
  const Match match = find(cursor, parts, tokens, held + kLeastGain, most);
  Start start;
  if (match.entry != nullptr) {
    const auto wanted = shortened(parts, match.entry->rows.extent, match.length);
    // A fork may need memory, for which the budget may ask this cache: without the lock, and with
    // an entry that could be given up.
    lock.unlock();
    const bool ready = prepare_session(parts, *wanted, match.length).has_value();
    lock.lock();
    Entry* const entry = find(cursor, parts, tokens, match.length, match.length).entry;
    const bool same =
        entry != nullptr && shortened(parts, entry->rows.extent, match.length) == wanted;
    if (ready && same) {
      use(*entry);
      begin_copy(entry);
      lock.unlock();
      load_rows(parts, entry->rows, *wanted);
      set_session(parts, tokens, *wanted);
      lock.lock();
      end_copy(entry);
      start.length = match.length;
      ++hits_;
      tokens_ += match.length - held;
    }
  }
  const Position run = std::max(held, start.length);
  const bool shared = match.common >= kLeastCommon && match.common < std::ssize(tokens);
  if (shared && match.common >= run + kLeastGain) start.branch = match.common;
  return start;
}

PromptCache::Entry* PromptCache::parent_for(const SessionParts& parts, const Match& match) {
  Entry* entry = match.entry;
  // All of them have the tokens up to there, but these have not their last ones.
  while (entry != nullptr && entry->begin >= match.length) entry = parent_of(*entry);
  if (entry == nullptr || !shortened(parts, entry->rows.extent, match.length)) return nullptr;
  return entry;
}

void PromptCache::put(Cursor& cursor, const SessionParts& parts) {
  const Position length = parts.timeline->position();
  const auto tokens = parts.timeline->tokens().first(static_cast<std::size_t>(length));
  const Result<SessionExtent> extent = session_extent(parts, length);
  if (!extent) return;
  std::unique_lock lock(mutex_);
  const Match match = find(cursor, parts, tokens, 1, length);
  if (match.entry != nullptr) use(*match.entry);
  if (length < match.length + kLeastGain) return;
  Entry* parent = parent_for(parts, match);
  SessionRows rows =
      plan_rows(parts, *extent, parent == nullptr ? nullptr : &parent->rows, match.length);
  if (rows.parent == nullptr) parent = nullptr;
  const Position begin = parent == nullptr ? 0 : match.length;
  begin_copy(parent);
  const std::uint64_t row_bytes = rows_bytes(parts, rows);
  std::optional<Memory> memory = allocate(row_bytes, length - begin, parent);
  if (memory) {
    rows.memory = std::move(memory->rows);
    lock.unlock();
    save_rows(parts, rows);
    lock.lock();
  }
  end_copy(parent);
  if (!memory) return;
  // Another session may have been faster with the same text.
  if (length < find(cursor, parts, tokens, 1, length).length + kLeastGain) {
    memory->rows = std::move(rows.memory);
  } else {
    Entry& entry = add(*cursor.mode_, cursor.place_, tokens, begin, std::move(rows), row_bytes,
                       parent, *memory);
    name_entry(entry, tokens);
    parts.timeline->mark(length);
  }
  give_back(*memory);
}

std::optional<PromptCache::Memory> PromptCache::allocate(std::uint64_t rows,
                                                         Position num_tokens,
                                                         const Entry* parent) {
  const std::array<std::uint64_t, 2 + TokenTree::kMostNewNodes> sizes = {
      sizeof(Entry) + static_cast<std::uint64_t>(num_tokens) * sizeof(TokenId), rows,
      TokenTree::kNodeBytes, TokenTree::kNodeBytes};
  std::uint64_t charged = 0;
  for (const std::uint64_t size : sizes) charged += MemoryBudget::charged_bytes(size);
  const std::uint64_t kept = parent == nullptr ? 0 : std::min(parent->chain_bytes, bytes_);
  const std::uint64_t free = budget_.free_host_bytes();
  const bool possible = kept <= limit_ && charged <= limit_ - kept &&
                        (charged <= free || charged - free <= bytes_ - kept);
  while (possible) {
    if (bytes_ <= limit_ - charged) {
      Memory memory;
      const std::array<Buffer*, sizes.size()> buffers = {&memory.entry, &memory.rows,
                                                         &memory.nodes[0], &memory.nodes[1]};
      std::size_t done = 0;
      for (; done < sizes.size(); ++done) {
        Result<Buffer> buffer = budget_.allocate_spare(MemoryClass::kPromptCache, sizes[done]);
        if (!buffer) break;
        *buffers[done] = std::move(*buffer);
      }
      if (done == sizes.size()) {
        bytes_ += charged;
        return memory;
      }
    }
    if (!evict_oldest()) break;
  }
  return std::nullopt;
}

void PromptCache::give_back(Memory& memory) {
  for (Buffer* buffer : {&memory.entry, &memory.rows, &memory.nodes[0], &memory.nodes[1]}) {
    bytes_ -= buffer->size();
    *buffer = Buffer();
  }
}

PromptCache::Entry& PromptCache::add(Mode& mode,
                                     TokenTree::Cursor& place,
                                     std::span<const TokenId> tokens,
                                     Position begin,
                                     SessionRows rows,
                                     std::uint64_t row_bytes,
                                     Entry* parent,
                                     Memory& memory) {
  KAKEYA_CHECK(parent == nullptr ? begin == 0 : parent->begin < begin && begin <= parent->length());
  auto* const entry = new (memory.entry.data()) Entry;
  entry->memory = std::move(memory.entry);
  entry->rows = std::move(rows);
  entry->row_bytes = row_bytes;
  entry->mode = &mode;
  const auto own = tokens.subspan(static_cast<std::size_t>(begin));
  const std::span<TokenId> copy(reinterpret_cast<TokenId*>(entry + 1), own.size());
  std::ranges::copy(own, copy.begin());
  entry->parent = parent;
  entry->begin = begin;
  entry->tokens = copy;
  entry->chain_bytes =
      (parent == nullptr ? 0 : parent->chain_bytes) + entry->memory.size() +
      entry->rows.memory.size() +
      TokenTree::kMostNewNodes * MemoryBudget::charged_bytes(TokenTree::kNodeBytes);
  mode.tree.insert(*entry, place, memory.nodes);
  if (parent != nullptr) {
    parent->is_common = parent->is_common || parent->children > 0;
    ++parent->children;
    hold(*parent);
  }
  ++num_entries_;
  entry->used = ++clock_;
  add_idle(*entry);
  return *entry;
}

void PromptCache::begin_copy(Entry* entry) {
  if (entry != nullptr) hold(*entry);
  ++copying_;
}

void PromptCache::end_copy(Entry* entry) {
  if (entry != nullptr) release(*entry);
  --copying_;
  ++copies_;
  copied_.notify_all();
}

void PromptCache::hold(Entry& entry) {
  if (entry.holds++ == 0) remove_idle(entry);
}

void PromptCache::release(Entry& entry) {
  if (--entry.holds == 0) add_idle(entry);
}

void PromptCache::use(Entry& entry) {
  entry.used = ++clock_;
  if (entry.holds > 0) return;
  remove_idle(entry);
  add_idle(entry);
}

// Near one of the ends, as a rule: it was used last, or was a parent all the time.
void PromptCache::add_idle(Entry& entry) {
  if (newest_ == nullptr || newest_->used < entry.used) {
    entry.older = newest_;
    entry.newer = nullptr;
  } else {
    entry.newer = oldest_;
    while (entry.newer->used < entry.used) entry.newer = entry.newer->newer;
    entry.older = entry.newer->older;
  }
  (entry.older == nullptr ? oldest_ : entry.older->newer) = &entry;
  (entry.newer == nullptr ? newest_ : entry.newer->older) = &entry;
}

void PromptCache::remove_idle(Entry& entry) {
  (entry.older == nullptr ? oldest_ : entry.older->newer) = entry.newer;
  (entry.newer == nullptr ? newest_ : entry.newer->older) = entry.older;
}

// A parent goes after its children. Using one of them is using the parent too, but that need not be
// noted: once the last child was the oldest of all, so is a parent that was not used otherwise.
bool PromptCache::evict_oldest() {
  if (oldest_ == nullptr) return false;
  erase(*oldest_);
  return true;
}

void PromptCache::erase(Entry& idle) {
  unname(idle);
  remove_idle(idle);
  if (idle.parent != nullptr) {
    --parent_of(idle)->children;
    release(*parent_of(idle));
  }
  const Mode& mode = *idle.mode;
  TokenTree& tree = idle.mode->tree;
  const std::uint64_t nodes = tree.bytes();
  tree.erase(idle);
  bytes_ -= nodes - tree.bytes() + idle.memory.size() + idle.rows.memory.size();
  --num_entries_;
  // The entry lies in it.
  const Buffer memory = std::move(idle.memory);
  idle.~Entry();
  remove_if_unused(mode);
}

PromptCache::Entry* PromptCache::longest_beginning(const SnapshotKey& key,
                                                   std::span<const TokenId> tokens) {
  const auto found = modes_.find(key);
  if (found == modes_.end()) return nullptr;
  TokenTree& tree = found->second.tree;
  TokenTree::Cursor place;
  tree.attach(place);
  lookup_cost_ += tree.advance(place, 0, tokens);
  tree.detach(place);
  for (const TokenTree::Node* node = place.node; node != nullptr; node = node->parent) {
    if (node->end <= place.common && node->texts != nullptr) {
      return static_cast<Entry*>(node->texts);
    }
  }
  return nullptr;
}

CachedPrefix PromptCache::look_up(const SnapshotKey& key, std::span<const TokenId> tokens) {
  if (files_ != nullptr) files_->look_again(files_->deadline());
  const std::lock_guard lock(mutex_);
  const Entry* entry = longest_beginning(key, tokens);
  CachedPrefix prefix;
  if (entry != nullptr) prefix.tokens = entry->length();
  for (; entry != nullptr; entry = parent_of(*entry)) {
    prefix.bytes += entry->memory.size() + entry->rows.memory.size();
  }
  if (files_ != nullptr) look_up_files(files_->known().mode_of(key), tokens, prefix);
  return prefix;
}

std::uint64_t PromptCache::forget(const SnapshotKey& key,
                                  std::span<const TokenId> tokens,
                                  Position keep) {
  std::unique_lock lock(mutex_);
  std::uint64_t freed = 0;
  PrefixName forgotten;  // which is being written
  while (Entry* const entry = longest_beginning(key, tokens)) {
    if (entry->is_common || entry->length() <= keep) break;
    const bool written = !writing_.is_none() && writing_ == entry->name;
    if (written && writing_holds_) {
      stop_writing(lock);
      continue;
    }
    if (entry->holds > 0) break;
    if (written) forgotten = writing_;
    entry->waits = false;
    const std::uint64_t before = bytes_;
    erase(*entry);
    freed += before - bytes_;
  }
  // Its file is there then, to be deleted with the others.
  if (!forgotten.is_none()) copied_.wait(lock, [&] { return writing_ != forgotten; });
  lock.unlock();
  if (files_ != nullptr) freed += forget_files(files_->known().mode_of(key), tokens, keep);
  return freed;
}

void PromptCache::remove_if_unused(const Mode& mode) {
  if (!mode.tree.is_empty() || mode.tree.has_cursors()) return;
  const SnapshotKey key = mode.key;  // which goes with it
  modes_.erase(key);
}

bool PromptCache::reclaim(std::uint64_t missing) {
  std::unique_lock lock(mutex_);
  if (bytes_ < missing) return false;
  if (evict_oldest()) return true;
  if (copying_ == 0) return false;
  gives_way_ = true;
  copied_.wait(lock, [&, before = copies_] { return copies_ != before; });
  return true;
}

}  // namespace kakeya
