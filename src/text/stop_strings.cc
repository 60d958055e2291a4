#include "text/stop_strings.h"

#include <algorithm>

#include "base/status.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

std::uint64_t edge_key(std::uint32_t node, char byte) {
  return (std::uint64_t{node} << 8) | static_cast<unsigned char>(byte);
}

}  // namespace

Result<StopStringMatcher> StopStringMatcher::create(const std::vector<std::string>& stop_strings) {
  if (stop_strings.size() > kMaxStrings) {
    return invalid_argument("[stop strings] at most {} are allowed but {} were given", kMaxStrings,
                            stop_strings.size());
  }
  std::size_t num_checked = 0;
  std::size_t num_bytes = 0;
  std::size_t longest = 0;
  for (const std::string& text : stop_strings) {
    if (text.empty()) return invalid_argument("[stop strings] a stop string is empty");
    if (text.size() > kMaxStringBytes) {
      return invalid_argument("[stop strings] a stop string has {} bytes, more than {}",
                              text.size(), kMaxStringBytes);
    }
    if (!is_valid_utf8(text)) {
      return invalid_argument("[stop strings] stop string {} is no UTF-8", num_checked);
    }
    ++num_checked;
    num_bytes += text.size();
    longest = std::max(longest, text.size());
  }
  StopStringMatcher matcher;
  matcher.children_ = FlatMap(num_bytes);
  matcher.nodes_.emplace_back();
  matcher.edges_.emplace_back();
  for (std::size_t i = 0; i < stop_strings.size(); ++i) {
    matcher.sizes_.push_back(stop_strings[i].size());
    matcher.add(stop_strings[i], static_cast<std::int32_t>(i));
  }
  matcher.link();
  matcher.held_.reserve(longest);
  return matcher;
}

void StopStringMatcher::add(std::string_view text, std::int32_t index) {
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto child = children_.find(edge_key(node, byte));
    if (child) {
      node = static_cast<std::uint32_t>(*child);
      continue;
    }
    const auto next = static_cast<std::uint32_t>(nodes_.size());
    children_.insert(edge_key(node, byte), next);
    edges_[node].emplace_back(byte, next);
    nodes_.push_back({0, nodes_[node].depth + 1, -1});
    edges_.emplace_back();
    node = next;
  }
  if (nodes_[node].match < 0) nodes_[node].match = index;
}

void StopStringMatcher::link() {
  std::vector<std::uint32_t> queue = {0};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::uint32_t node = queue[i];
    for (const auto& [byte, child] : edges_[node]) {
      nodes_[child].fallback = node == 0 ? 0 : advance(nodes_[node].fallback, byte);
      if (nodes_[child].match < 0) nodes_[child].match = nodes_[nodes_[child].fallback].match;
      queue.push_back(child);
    }
  }
  edges_.clear();
}

std::uint32_t StopStringMatcher::advance(std::uint32_t node, char byte) const {
  while (true) {
    const auto child = children_.find(edge_key(node, byte));
    if (child) return static_cast<std::uint32_t>(*child);
    if (node == 0) return 0;
    node = nodes_[node].fallback;
  }
}

bool StopStringMatcher::feed(std::string_view piece, std::string& out) {
  if (found_) return true;
  // The text kept back and the piece are one text; the automaton has read the first part.
  const auto emit = [&](std::size_t size) {
    const std::size_t from_held = std::min(size, held_.size());
    out.append(held_, 0, from_held);
    held_.erase(0, from_held);
    out += piece.substr(0, size - from_held);
    piece.remove_prefix(size - from_held);
  };
  const std::size_t num_held = held_.size();
  for (std::size_t i = 0; i < piece.size(); ++i) {
    node_ = advance(node_, piece[i]);
    const std::int32_t match = nodes_[node_].match;
    if (match < 0) continue;
    found_ = static_cast<std::size_t>(match);
    emit(num_held + i + 1 - sizes_[*found_]);
    held_.clear();
    return true;
  }
  emit(num_held + piece.size() - nodes_[node_].depth);
  held_ += piece;
  return false;
}

void StopStringMatcher::flush(std::string& out) {
  out += held_;
  held_.clear();
  node_ = 0;
}

void StopStringMatcher::reset() {
  held_.clear();
  node_ = 0;
  found_.reset();
}

}  // namespace kakeya
