#include "runtime/token_tree.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"

namespace kakeya {
namespace {

void add_child(TokenTree::Node& parent, TokenTree::Node& child) {
  child.parent = &parent;
  child.previous = nullptr;
  child.next = parent.first_child;
  if (child.next != nullptr) child.next->previous = &child;
  parent.first_child = &child;
}

void remove_child(TokenTree::Node& child) {
  if (child.next != nullptr) child.next->previous = child.previous;
  (child.previous != nullptr ? child.previous->next : child.parent->first_child) = child.next;
}

// Where the tokens of the edge lie. An edge never spans two texts of a chain: where one begins, its
// parent ends or goes on differently, and both have a node there.
const TokenId* tokens_of_edge(const TokenTree::Node& node) {
  const TokenTree::Node* below = &node;
  while (below->texts == nullptr) below = below->first_child;
  const TokenTree::Text* text = below->texts;
  while (text->begin > node.begin) text = text->parent;
  return text->tokens.data() + (node.begin - text->begin);
}

}  // namespace

TokenTree::~TokenTree() {
  KAKEYA_CHECK(is_empty() && !has_cursors());
}

void TokenTree::attach(Cursor& cursor) {
  cursor = {.node = &root_, .common = 0};
  cursors_.push_back(&cursor);
}

void TokenTree::detach(Cursor& cursor) {
  std::erase(cursors_, &cursor);
}

std::uint64_t TokenTree::advance(Cursor& cursor,
                                 Position known,
                                 std::span<const TokenId> tokens) const {
  std::uint64_t cost = 0;
  Node* node = cursor.node;
  Position common = std::min({cursor.common, known, static_cast<Position>(std::ssize(tokens))});
  for (; !is_root(*node) && node->begin >= common; node = node->parent) ++cost;
  while (true) {
    const auto edge = std::span(node->tokens, static_cast<std::size_t>(node->end - node->begin))
                          .subspan(static_cast<std::size_t>(common - node->begin));
    const auto rest = tokens.subspan(static_cast<std::size_t>(common));
    const auto [end, unused] = std::mismatch(edge.begin(), edge.end(), rest.begin(), rest.end());
    common += end - edge.begin();
    cost += static_cast<std::uint64_t>(end - edge.begin()) + 1;
    if (common < node->end || common == std::ssize(tokens)) break;
    Node* child = node->first_child;
    for (; child != nullptr; child = child->next) {
      ++cost;
      if (*child->tokens == tokens[static_cast<std::size_t>(common)]) break;
    }
    if (child == nullptr) break;
    node = child;
  }
  cursor = {.node = node, .common = common};
  return cost;
}

void TokenTree::insert(Text& text, Cursor& cursor, NewNodes& memory) {
  Node* node = cursor.node;
  const Position common = cursor.common;
  KAKEYA_CHECK(text.begin <= common && common <= text.length());
  if (common < node->end) node = split(*node, common, memory[0]);
  if (common < text.length()) {
    Node* const leaf = make_node(memory[1]);
    leaf->tokens = text.tokens.data() + (common - text.begin);
    leaf->begin = common;
    leaf->end = text.length();
    add_child(*node, *leaf);
    node = leaf;
  }
  text.node = node;
  text.next = std::exchange(node->texts, &text);
  cursor = {.node = node, .common = text.length()};
}

void TokenTree::erase(Text& text) {
  Node* node = text.node;
  Text** link = &node->texts;
  while (*link != &text) link = &(*link)->next;
  *link = text.next;
  if (node->texts == nullptr && node->first_child == nullptr) node = remove_leaf(*node);
  const bool is_needed =
      is_root(*node) || node->texts != nullptr || node->first_child->next != nullptr;
  if (!is_needed) node = join_child(*node);
  // Texts that go through the same nodes have these tokens too.
  for (; !is_root(*node) && node->end > text.begin; node = node->parent) {
    node->tokens = tokens_of_edge(*node);
  }
}

TokenTree::Node* TokenTree::following(const Node& node, const Node& top, bool below) {
  if (below && node.first_child != nullptr) return node.first_child;
  for (const Node* from = &node; from != &top; from = from->parent) {
    if (from->next != nullptr) return from->next;
  }
  return nullptr;
}

TokenTree::Node* TokenTree::make_node(Buffer& memory) {
  Node* const node = new (memory.data()) Node;
  node->memory = std::move(memory);
  bytes_ += node->memory.size();
  return node;
}

void TokenTree::move_cursors(const Node& from, Node& to, Position common) {
  for (Cursor* cursor : cursors_) {
    if (cursor->node == &from) *cursor = {.node = &to, .common = std::min(cursor->common, common)};
  }
}

TokenTree::Node* TokenTree::split(Node& node, Position end, Buffer& memory) {
  Node* const upper = make_node(memory);
  upper->tokens = node.tokens;
  upper->begin = node.begin;
  upper->end = end;
  remove_child(node);
  add_child(*node.parent, *upper);
  add_child(*upper, node);
  node.tokens += end - node.begin;
  node.begin = end;
  return upper;
}

TokenTree::Node* TokenTree::remove_leaf(Node& node) {
  Node* const parent = node.parent;
  remove_child(node);
  move_cursors(node, *parent, parent->end);
  destroy(node);
  return parent;
}

TokenTree::Node* TokenTree::join_child(Node& node) {
  Node* const child = node.first_child;
  child->begin = node.begin;
  remove_child(node);
  add_child(*node.parent, *child);
  move_cursors(node, *child, std::numeric_limits<Position>::max());
  destroy(node);
  return child;
}

void TokenTree::destroy(Node& node) {
  const Buffer memory = std::move(node.memory);
  bytes_ -= memory.size();
  node.~Node();
}

}  // namespace kakeya
