#include "text/vocabulary.h"

#include <functional>
#include <limits>

#include "base/status.h"
#include "formats/printable.h"
#include "text/flat_map.h"

namespace kakeya {

std::optional<std::string_view> Vocabulary::text(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= spans_.size()) return std::nullopt;
  const Span& span = spans_[static_cast<std::size_t>(id)];
  if (!span.used) return std::nullopt;
  return std::string_view(texts_).substr(span.offset, span.size);
}

Vocabulary::Place Vocabulary::place_of(std::string_view text) const {
  constexpr int kTagBits = 31 - kIdBits;  // no tag and id together are kFree
  const std::uint64_t hash = mix_bits(std::hash<std::string_view>{}(text));
  const Slot tag = static_cast<Slot>(hash >> (64 - kTagBits)) << kIdBits;
  const std::size_t mask = slots_.size() - 1;
  std::size_t index = hash & mask;
  while (slots_[index] != kFree) {
    const Slot slot = slots_[index];
    if ((slot & ~static_cast<Slot>(kMaxId)) == tag && *this->text(id_of(slot)) == text) break;
    index = (index + 1) & mask;
  }
  return {index, tag};
}

void Vocabulary::grow() {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(old.empty() ? 64 : old.size() * 2, kFree);
  for (const Slot slot : old) {
    if (slot != kFree) slots_[place_of(*text(id_of(slot))).index] = slot;
  }
}

Status Vocabulary::add(std::string_view text, std::int64_t id) {
  if (id < 0 || id > kMaxId) {
    return data_loss("[tokenizer] token ids must be in 0..{} but '{}' has {}", kMaxId,
                     printable(text), id);
  }
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
    return data_loss("[tokenizer] the text of token {} has {} bytes", id, text.size());
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= spans_.size()) spans_.resize(index + 1);
  if (spans_[index].used) {
    if (this->text(static_cast<TokenId>(id)) == text) return {};
    return data_loss("[tokenizer] id {} belongs to both '{}' and '{}'", id,
                     printable(*this->text(static_cast<TokenId>(id))), printable(text));
  }
  if (num_entries_ * 2 >= slots_.size()) grow();

  spans_[index] = {texts_.size(), static_cast<std::uint32_t>(text.size()), true};
  texts_ += text;
  const Place place = place_of(text);
  num_entries_ += slots_[place.index] == kFree;
  slots_[place.index] = place.tag | static_cast<Slot>(id);
  return {};
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const Slot slot = slots_[place_of(text).index];
  if (slot == kFree) return std::nullopt;
  return id_of(slot);
}

}  // namespace kakeya
