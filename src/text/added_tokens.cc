#include "text/added_tokens.h"

namespace kakeya {
namespace {

std::uint64_t edge(std::uint64_t node, char byte) {
  return (node << 8) | static_cast<unsigned char>(byte);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<Token>& tokens) {
  std::size_t num_bytes = 0;
  for (const Token& token : tokens) num_bytes += token.text.size();
  children_ = FlatMap(num_bytes);
  nodes_.emplace_back();
  for (const Token& token : tokens) {
    if (token.text.empty()) continue;
    first_bytes_[static_cast<unsigned char>(token.text[0])] = true;
    std::uint64_t node = 0;
    for (const char byte : token.text) {
      const auto child = children_.find(edge(node, byte));
      if (!child) {
        children_.insert(edge(node, byte), nodes_.size());
        nodes_.emplace_back();
      }
      node = child.value_or(nodes_.size() - 1);
    }
    nodes_[node] = {token.id, token.special};
  }
}

// Special tokens end at or before special_end.
std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::longest_at(
    std::string_view text, std::size_t offset, std::size_t special_end) const {
  std::optional<Match> longest;
  std::uint64_t node = 0;
  for (std::size_t i = offset; i < text.size(); ++i) {
    const auto child = children_.find(edge(node, text[i]));
    if (!child) break;
    node = *child;
    const Node& reached = nodes_[node];
    if (reached.id < 0 || (reached.special && i >= special_end)) continue;
    longest = Match{offset, i + 1 - offset, reached.id};
  }
  return longest;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(
    std::string_view text,
    std::size_t offset,
    bool match_special,
    std::span<const TextRange> plain) const {
  for (std::size_t i = offset; i < text.size(); ++i) {
    if (!first_bytes_[static_cast<unsigned char>(text[i])]) continue;
    while (!plain.empty() && plain.front().end <= i) plain = plain.subspan(1);
    const std::size_t special_end = plain.empty() ? text.size() : plain.front().begin;
    if (auto match = longest_at(text, i, match_special ? special_end : 0)) return match;
  }
  return std::nullopt;
}

}  // namespace kakeya
