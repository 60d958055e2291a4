// The tree of texts against a list that is searched as a whole.
#include "runtime/token_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <span>
#include <vector>

#include "base/random.h"
#include "property.h"

namespace kakeya::test {
namespace {

using Ids = std::vector<TokenId>;

Position common_length(const Ids& a, const Ids& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// A text of the tree with all of its tokens, and those that the tree refers to.
struct Held : TokenTree::Text {
  Ids all;
  Ids own;
  int children = 0;
};

// A session: its text, how much of it is as its cursor saw it, and the cursor.
struct Reader {
  Ids text;
  Position known = 0;
  TokenTree::Cursor cursor;
};

// The tree beside a list of all its texts.
struct TreeAndList {
  TreeAndList() {
    for (Reader& reader : readers) tree.attach(reader.cursor);
  }
  ~TreeAndList() {
    erase_all();
    for (Reader& reader : readers) tree.detach(reader.cursor);
  }
  TreeAndList(const TreeAndList&) = delete;
  TreeAndList& operator=(const TreeAndList&) = delete;

  std::uint64_t advance(Reader& reader) {
    const std::uint64_t cost = tree.advance(reader.cursor, reader.known, reader.text);
    reader.known = reader.cursor.common;
    return cost;
  }

  Held* insert(Reader& reader, Held* parent) {
    advance(reader);
    Held& text = held.emplace_back();
    text.all = reader.text;
    text.parent = parent;
    text.begin = parent == nullptr ? 0 : common_length(parent->all, text.all);
    text.own = {text.all.begin() + text.begin, text.all.end()};
    text.tokens = text.own;
    if (parent != nullptr) ++parent->children;
    TokenTree::NewNodes memory;
    for (Buffer& buffer : memory) {
      buffer = budget.allocate(MemoryClass::kPromptCache, TokenTree::kNodeBytes).value();
    }
    tree.insert(text, reader.cursor, memory);
    reader.known = reader.cursor.common;
    RC_ASSERT(reader.known == std::ssize(reader.text));
    return &text;
  }

  void erase(std::list<Held>::iterator text) {
    tree.erase(*text);
    if (text->parent != nullptr) --static_cast<Held*>(text->parent)->children;
    std::ranges::fill(text->own, -1);  // the tree must not look at them any more
    graves.push_back(std::move(text->own));
    held.erase(text);
  }

  void erase_all() {
    while (!held.empty()) erase(std::ranges::find(held, 0, &Held::children));
  }

  Position most_common(const Ids& text) const {
    Position most = 0;
    for (const Held& each : held) most = std::max(most, common_length(each.all, text));
    return most;
  }

  // Every text ends where it should, and nodes are no more than needed.
  void check() {
    std::size_t nodes = 0;
    for (const Held& text : held) {
      RC_ASSERT(text.node->end == text.length());
      RC_ASSERT(text.length() == std::ssize(text.all));
    }
    const TokenTree::Node* root = readers[0].cursor.node;
    while (!tree.is_root(*root)) root = root->parent;
    for (const auto* node = root; node != nullptr;
         node = TokenTree::following(*node, *root, true)) {
      if (tree.is_root(*node)) continue;
      ++nodes;
      RC_ASSERT(node->parent->end == node->begin);
      RC_ASSERT(node->begin < node->end);
      const bool needed = node->texts != nullptr ||
                          (node->first_child != nullptr && node->first_child->next != nullptr);
      RC_ASSERT(needed);
    }
    RC_ASSERT(tree.bytes() == nodes * MemoryBudget::charged_bytes(TokenTree::kNodeBytes));
    RC_ASSERT(budget.footprint().total_reserved() == tree.bytes());
  }

  MemoryBudget budget;
  std::list<Held> held;
  std::vector<Ids> graves;
  TokenTree tree;
  std::array<Reader, 4> readers;
};

// One thing that may happen: a session's text gets another end, and perhaps an entry; entries go.
void step(Choices& choices, TreeAndList& all) {
  Reader& reader = all.readers[choices.below(all.readers.size())];
  if (choices.below(3) > 0) {
    reader.text.resize(choices.below(reader.text.size() + 1));
    reader.known = std::min(reader.known, static_cast<Position>(reader.text.size()));
  }
  // Few kinds of tokens, so that texts have much in common.
  for (auto more = choices.below(12); more > 0 && reader.text.size() < 60; --more) {
    reader.text.push_back(choices.below(8) == 1 ? 1 : 0);
  }
  all.advance(reader);
  RC_ASSERT(reader.cursor.common == all.most_common(reader.text));
  const auto any = [&] {
    return std::next(all.held.begin(), static_cast<std::ptrdiff_t>(choices.below(all.held.size())));
  };
  if (choices.below(3) == 1 && !reader.text.empty()) {
    all.insert(reader, !all.held.empty() && choices.below(4) > 0 ? &*any() : nullptr);
  }
  while (!all.held.empty() && (all.held.size() > 30 || choices.below(4) == 1)) {
    auto text = any();
    while (text->children > 0) {
      text = std::next(text) == all.held.end() ? all.held.begin() : std::next(text);
    }
    all.erase(text);
  }
  all.check();
}

TEST(TokenTree, FindsWhatAListFindsWhateverHappens) {
  expect_property("the tree finds what a list finds", [] {
    Choices choices = Choices::any(1000);
    TreeAndList all;
    while (!choices.is_empty()) step(choices, all);
    all.erase_all();
    RC_ASSERT(all.tree.is_empty());
    all.check();
  });
}

TEST(TokenTree, LookingUpATextThatHasGrownCostsWhatIsNewOfIt) {
  TreeAndList all;
  Reader& reader = all.readers[0];
  Reader& another = all.readers[1];
  Held* last = nullptr;
  SequenceRng random(2);
  for (int turn = 0; turn < 500; ++turn) {
    for (int i = 0; i < 20; ++i) {
      reader.text.push_back(static_cast<TokenId>(random.below(1000)));
    }
    EXPECT_LE(all.advance(reader), 4U) << turn;  // the rest is in no text
    last = all.insert(reader, last);
    another.text = reader.text;
    EXPECT_LE(all.advance(another), 20U + 4U) << turn;
    EXPECT_EQ(another.cursor.common, std::ssize(reader.text));
  }
  while (!all.held.empty()) all.erase(std::prev(all.held.end()));
  EXPECT_EQ(reader.cursor.common, 0);
}

}  // namespace
}  // namespace kakeya::test
