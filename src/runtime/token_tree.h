// Texts in a radix tree, found by their beginnings. A cursor remembers how far a text is known to
// be in the tree, so looking up a text that has grown costs what is new of it.
//
//     root --[ system text ]--+--[ question, answer ]--[ question ]     each bracket a node with
//                             \--[ another question ]                   the tokens of its edge
//
// The tree allocates nothing: tokens lie with the texts, nodes in buffers that the caller gives.
// So what it takes is in the ledger.
//
// One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory_budget.h"
#include "kakeya/types.h"

namespace kakeya {

class TokenTree {
 public:
  struct Node;

  // A text of the tree; its first `begin` tokens are those of its parent.
  struct Text {
    // Null: none. It must be in the tree as long as this, and its next token must differ, if it has
    // one: `begin` is all that the two have in common.
    Text* parent = nullptr;
    Position begin = 0;
    std::span<const TokenId> tokens;  // from `begin` on, in memory of the text's owner
    // The tree's: where the text ends, and another one that ends there.
    Node* node = nullptr;
    Text* next = nullptr;

    Position length() const { return begin + std::ssize(tokens); }
  };

  // An edge with what is behind it. Only the root has no tokens. A node without texts that end at
  // it has two children or more.
  struct Node {
    Buffer memory;  // that it lies in; none for the root
    Node* parent = nullptr;
    Node* first_child = nullptr;
    Node* previous = nullptr;  // among the parent's children
    Node* next = nullptr;
    Text* texts = nullptr;
    const TokenId* tokens = nullptr;  // of positions begin to end - 1
    Position begin = 0;
    Position end = 0;
  };

  // How far a text is in the tree: its first `common` tokens lead to this node, into its edge.
  struct Cursor {
    Node* node = nullptr;
    Position common = 0;
  };

  // Memory for what insert() may need.
  static constexpr std::size_t kMostNewNodes = 2;
  static constexpr std::uint64_t kNodeBytes = sizeof(Node);
  using NewNodes = std::array<Buffer, kMostNewNodes>;

  TokenTree() = default;
  // Neither texts nor cursors may be left.
  ~TokenTree();
  TokenTree(const TokenTree&) = delete;
  TokenTree& operator=(const TokenTree&) = delete;

  // From here to detach() the cursor stays true whatever becomes of the tree; it must not move.
  void attach(Cursor& cursor);
  void detach(Cursor& cursor);

  // Moves the cursor to where `tokens` leave the tree: cursor.common is then the most tokens that
  // they have in common with any text. `known`: as many of them are as they were when the cursor
  // was last moved. Returns what that cost: tokens compared, and nodes visited.
  std::uint64_t advance(Cursor& cursor, Position known, std::span<const TokenId> tokens) const;

  // Adds the text whose tokens the cursor was just advanced over, and moves the cursor to its end.
  // Takes as many of the buffers, of kNodeBytes each, as become nodes.
  void insert(Text& text, Cursor& cursor, NewNodes& memory);

  // Takes a text out that is no other's parent. Its tokens may be freed then.
  void erase(Text& text);

  // The node behind `node` in the subtree of `top`, parents first; null: none. `below`: whether to
  // go on with what is below `node`, or leave that out.
  static Node* following(const Node& node, const Node& top, bool below);

  bool is_root(const Node& node) const { return &node == &root_; }
  bool is_empty() const { return root_.first_child == nullptr; }
  bool has_cursors() const { return !cursors_.empty(); }
  // The bytes of all nodes, as charged.
  std::uint64_t bytes() const { return bytes_; }

 private:
  // A new node in the memory, which it keeps.
  Node* make_node(Buffer& memory);
  // Cursors at a node that goes away: they move to `to`, which has `common` of its tokens at least.
  void move_cursors(const Node& from, Node& to, Position common);
  // The part of the node's edge below `end` becomes a node of its own, the node's parent.
  Node* split(Node& node, Position end, Buffer& memory);
  // Takes a node without children or texts away; returns its parent.
  Node* remove_leaf(Node& node);
  // Joins a node without texts to its only child, which is returned.
  Node* join_child(Node& node);
  void destroy(Node& node);

  Node root_;
  std::vector<Cursor*> cursors_;
  std::uint64_t bytes_ = 0;
};

}  // namespace kakeya
