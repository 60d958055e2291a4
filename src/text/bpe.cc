#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "formats/printable.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

constexpr std::uint32_t kNoSymbol = std::numeric_limits<std::uint32_t>::max();

// Longer words are encoded in parts, so that positions fit into 32 bits. No prompt comes near it.
constexpr std::size_t kMaxWordSymbols = std::size_t{1} << 30;

std::uint64_t pack(std::uint32_t high, std::uint32_t low) {
  return (std::uint64_t{high} << 32) | low;
}

std::uint64_t pair_key(TokenId left, TokenId right) {
  return pack(static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right));
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary,
         BpeOptions options,
         std::size_t num_merges,
         const std::vector<bool>* candidates)
    : options_(options), merges_(num_merges), character_ids_(vocabulary.size()) {
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const auto text = vocabulary.text(static_cast<TokenId>(i));
    if (!text || text->empty()) continue;
    const Utf8Step step = read_utf8(*text, 0);
    if (step.size != text->size() || !step.valid) continue;
    const auto id = static_cast<std::size_t>(*vocabulary.find(*text));
    if (candidates == nullptr || (*candidates)[id]) character_ids_.insert(step.code_point, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoToken);
  }
}

Status Bpe::add_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right) {
  const auto left_id = vocabulary.find(left);
  const auto right_id = vocabulary.find(right);
  const auto joined_id = vocabulary.find(std::string(left).append(right));
  if (!left_id || !right_id || !joined_id) {
    return data_loss("[tokenizer] merge {} ('{}' + '{}') names a token that the vocabulary lacks",
                     num_merges_, printable(left), printable(right));
  }
  add_merge({*left_id, *right_id, *joined_id, num_merges_});
  return {};
}

void Bpe::add_merge(const Merge& merge) {
  merges_.insert(pair_key(merge.left, merge.right),
                 pack(merge.rank, static_cast<std::uint32_t>(merge.joined)));
  ++num_merges_;
}

void Bpe::append_symbol(TokenId id, Scratch& scratch) const {
  const auto position = static_cast<std::uint32_t>(scratch.symbols.size());
  const std::uint32_t previous = position == 0 ? kNoSymbol : position - 1;
  scratch.symbols.push_back({id, previous, position + 1});
}

bool Bpe::append_byte_tokens(std::string_view character, Scratch& scratch) const {
  if (!options_.byte_fallback) return false;
  for (const char c : character) {
    if (byte_ids_[static_cast<unsigned char>(c)] == kNoToken) return false;
  }
  for (const char c : character) append_symbol(byte_ids_[static_cast<unsigned char>(c)], scratch);
  return true;
}

void Bpe::append_unknown(bool& last_was_unknown, Scratch& scratch) const {
  if (!options_.unknown) return;
  if (last_was_unknown && options_.fuse_unknown) return;
  append_symbol(*options_.unknown, scratch);
  last_was_unknown = true;
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  scratch.symbols.clear();
  bool last_was_unknown = false;
  for (std::size_t i = 0; i < word.size();) {
    const Utf8Step step = read_utf8(word, i);
    const std::string_view character = word.substr(i, step.size);
    i += step.size;
    if (const auto id = character_ids_.find(step.code_point)) {
      append_symbol(static_cast<TokenId>(*id), scratch);
      last_was_unknown = false;
    } else if (append_byte_tokens(character, scratch)) {
      last_was_unknown = false;
    } else {
      append_unknown(last_was_unknown, scratch);
    }
    if (scratch.symbols.size() >= kMaxWordSymbols) flush(scratch, out);
  }
  flush(scratch, out);
}

void Bpe::flush(Scratch& scratch, std::vector<TokenId>& out) const {
  if (scratch.symbols.empty()) return;
  scratch.symbols.back().next = kNoSymbol;
  merge_all(scratch);
  for (std::uint32_t i = 0; i != kNoSymbol; i = scratch.symbols[i].next) {
    out.push_back(scratch.symbols[i].id);
  }
  scratch.symbols.clear();
}

void Bpe::push_pair(std::uint32_t position, Scratch& scratch) const {
  const auto& symbol = scratch.symbols[position];
  if (symbol.next == kNoSymbol) return;
  const auto merge = merges_.find(pair_key(symbol.id, scratch.symbols[symbol.next].id));
  if (!merge) return;
  scratch.queue.push_back(pack(static_cast<std::uint32_t>(*merge >> 32), position));
}

void Bpe::merge_all(Scratch& scratch) const {
  // The queue holds (rank, position of the left symbol), smallest first: the lowest rank, and the
  // leftmost pair among equals. Entries whose pair has changed meanwhile are dropped when they
  // come up, which their rank tells.
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  queue.clear();
  for (std::uint32_t i = 0; i < symbols.size(); ++i) push_pair(i, scratch);
  std::make_heap(queue.begin(), queue.end(), std::greater<>());

  const auto push = [&](std::uint32_t position) {
    const std::size_t size_before = queue.size();
    push_pair(position, scratch);
    if (queue.size() > size_before) std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto rank = static_cast<std::uint32_t>(queue.back() >> 32);
    const auto position = static_cast<std::uint32_t>(queue.back());
    queue.pop_back();

    auto& left = symbols[position];
    if (left.id == kNoToken || left.next == kNoSymbol) continue;
    auto& right = symbols[left.next];
    const auto merge = merges_.find(pair_key(left.id, right.id));
    if (!merge || static_cast<std::uint32_t>(*merge >> 32) != rank) continue;

    left.id = static_cast<TokenId>(static_cast<std::uint32_t>(*merge));
    left.next = right.next;
    right.id = kNoToken;
    if (left.next != kNoSymbol) symbols[left.next].previous = position;
    if (left.previous != kNoSymbol) push(left.previous);
    push(position);
  }
}

bool Bpe::keeps_every_byte() const {
  const bool all_bytes = std::find(byte_ids_.begin(), byte_ids_.end(), kNoToken) == byte_ids_.end();
  if (options_.byte_fallback && all_bytes) return true;
  return options_.unknown.has_value() && !options_.fuse_unknown;
}

}  // namespace kakeya
