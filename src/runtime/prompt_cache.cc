#include "runtime/prompt_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace kakeya {
namespace {

std::uint64_t hash_of(const SnapshotKey& key) {
  std::uint64_t hash = 0;
  for (const auto& [name, value] : key) {
    hash = XXH3_64bits_withSeed(name.data(), name.size(), hash);
    hash = XXH3_64bits_withSeed(value.data(), value.size(), hash);
  }
  return hash;
}

}  // namespace

PromptCache::Text::Text(const SnapshotKey& session_key, std::span<const TokenId> ids)
    : key(session_key), tokens(ids) {
  std::uint64_t hash = hash_of(key);
  const std::size_t blocks = tokens.size() / kBlockTokens;
  hashes.reserve(blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto block = tokens.subspan(i * kBlockTokens, kBlockTokens);
    hash = XXH3_64bits_withSeed(block.data(), block.size_bytes(), hash);
    hashes.push_back(hash);
  }
}

PromptCache::PromptCache(std::uint64_t limit_bytes, MemoryBudget& budget)
    : limit_(limit_bytes), budget_(budget) {
  budget_.set_reclaimer(this);
}

PromptCache::~PromptCache() {
  budget_.set_reclaimer(nullptr);
}

std::uint64_t PromptCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::int64_t PromptCache::num_entries() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(entries_);
}

// Blocks by their hashes, each of which stands for all before it; only the first block that differs
// is looked into. Whoever relies on the result compares the tokens.
Position PromptCache::common_length(const Entry& entry, const Text& text) {
  const auto [block, unused] = std::mismatch(entry.hashes.begin(), entry.hashes.end(),
                                             text.hashes.begin(), text.hashes.end());
  const auto equal = static_cast<std::size_t>(block - entry.hashes.begin()) * kBlockTokens;
  const auto rest = std::span(entry.tokens).subspan(equal);
  const auto of_text = text.tokens.subspan(equal);
  const auto [token, end] = std::mismatch(rest.begin(), rest.end(), of_text.begin(), of_text.end());
  return static_cast<Position>(equal) + (token - rest.begin());
}

PromptCache::Match PromptCache::find(const Text& text, const SessionParts& parts, Position most) {
  Match match;
  for (Entry& entry : entries_) {
    if (entry.key != text.key) continue;
    const Position common = common_length(entry, text);
    const Position length = std::min(common, most);
    const bool further = common > match.common;
    const bool better = length > match.length && shortened(parts, entry.rows.extent, length);
    if (!further && !better) continue;
    // A hash is no proof. Where two texts have one, it is as if the entry were not there.
    if (!std::equal(entry.tokens.begin(), entry.tokens.begin() + common, text.tokens.begin())) {
      continue;
    }
    if (further) match.common = common;
    if (!better) continue;
    match.entry = &entry;
    match.length = length;
  }
  return match;
}

PromptCache::Start PromptCache::take(const SnapshotKey& key, const SessionParts& parts) {
  const std::vector<TokenId> tokens(parts.timeline->tokens().begin(),
                                    parts.timeline->tokens().end());
  const Position held = parts.timeline->position();
  const Position most = std::ssize(tokens) - 1;
  if (most < held + kLeastGain) return {};
  const Text text(key, tokens);
  std::unique_lock lock(mutex_);
  const Match match = find(text, parts, most);
  Start start;
  if (match.length >= held + kLeastGain) {
    const std::uint64_t id = match.entry->id;
    const auto wanted = shortened(parts, match.entry->rows.extent, match.length);
    // A fork may need memory, for which the budget may ask this cache: without the lock, and with
    // an entry that could be given up.
    lock.unlock();
    const bool ready = prepare_session(parts, *wanted, match.length).has_value();
    lock.lock();
    const auto entry = std::ranges::find(entries_, id, &Entry::id);
    if (ready && entry != entries_.end()) {
      entry->used = ++clock_;
      begin_copy(&*entry);
      lock.unlock();
      load_rows(parts, entry->rows, *wanted);
      set_session(parts, tokens, *wanted);
      lock.lock();
      end_copy(&*entry);
      start.length = match.length;
    }
  }
  const Position run = std::max(held, start.length);
  const bool shared = match.common >= kBlockTokens && match.common < std::ssize(tokens);
  if (shared && match.common >= run + kLeastGain) start.branch = match.common;
  return start;
}

void PromptCache::put(const SnapshotKey& key, const SessionParts& parts) {
  const Position length = parts.timeline->position();
  const Text text(key, parts.timeline->tokens().first(static_cast<std::size_t>(length)));
  const Result<SessionExtent> extent = session_extent(parts, length);
  if (!extent) return;
  std::unique_lock lock(mutex_);
  const Match match = find(text, parts, length);
  if (match.entry != nullptr) match.entry->used = ++clock_;
  if (length < match.length + kLeastGain) return;
  SessionRows rows = plan_rows(parts, *extent,
                               match.entry == nullptr ? nullptr : &match.entry->rows, match.length);
  Entry* const parent = rows.parent == nullptr ? nullptr : match.entry;
  begin_copy(parent);
  std::optional<Buffer> memory = allocate(rows_bytes(parts, rows), parent);
  if (memory) {
    rows.memory = std::move(*memory);
    lock.unlock();
    save_rows(parts, rows);
    lock.lock();
  }
  end_copy(parent);
  if (!memory) return;
  // Another session may have been faster with the same text.
  if (length < find(text, parts, length).length + kLeastGain) {
    bytes_ -= rows.memory.size();
    return;
  }
  if (parent != nullptr) ++parent->holds;
  entries_.push_back({.id = ++last_id_,
                      .key = key,
                      .tokens = {text.tokens.begin(), text.tokens.end()},
                      .hashes = text.hashes,
                      .rows = std::move(rows),
                      .parent = parent});
  entries_.back().used = ++clock_;
}

std::optional<Buffer> PromptCache::allocate(std::uint64_t bytes, const Entry* parent) {
  const std::uint64_t charged = MemoryBudget::charged_bytes(bytes);
  std::uint64_t kept = 0;
  for (const Entry* e = parent; e != nullptr; e = e->parent) kept += e->rows.memory.size();
  const std::uint64_t free = budget_.limit() - budget_.footprint().total_reserved();
  const bool possible = kept <= limit_ && charged <= limit_ - kept &&
                        (charged <= free || charged - free <= bytes_ - kept);
  while (possible) {
    if (bytes_ <= limit_ - charged) {
      Result<Buffer> buffer = budget_.allocate_spare(MemoryClass::kPromptCache, bytes);
      if (buffer) {
        bytes_ += buffer->size();
        return std::move(*buffer);
      }
    }
    if (!evict_oldest()) break;
  }
  return std::nullopt;
}

void PromptCache::begin_copy(Entry* entry) {
  if (entry != nullptr) ++entry->holds;
  ++copying_;
}

void PromptCache::end_copy(Entry* entry) {
  if (entry != nullptr) --entry->holds;
  --copying_;
  ++copies_;
  copied_.notify_all();
}

// A parent goes after its children. Using one of them is using the parent too, but that need not be
// noted: once the last child was the oldest of all, so is a parent that was not used otherwise.
bool PromptCache::evict_oldest() {
  auto oldest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->holds > 0) continue;
    if (oldest == entries_.end() || entry->used < oldest->used) oldest = entry;
  }
  if (oldest == entries_.end()) return false;
  if (oldest->parent != nullptr) --oldest->parent->holds;
  bytes_ -= oldest->rows.memory.size();
  entries_.erase(oldest);
  return true;
}

bool PromptCache::reclaim(std::uint64_t missing) {
  std::unique_lock lock(mutex_);
  if (bytes_ < missing) return false;
  if (evict_oldest()) return true;
  if (copying_ == 0) return false;
  copied_.wait(lock, [&, before = copies_] { return copies_ != before; });
  return true;
}

}  // namespace kakeya
