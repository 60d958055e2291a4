// The tree of texts against a list that is searched as a whole.
#include "runtime/token_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <span>
#include <vector>

#include "base/random.h"

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

class TokenTreeTest : public testing::Test {
 protected:
  TokenTreeTest() {
    for (Reader& reader : readers_) tree_.attach(reader.cursor);
  }
  ~TokenTreeTest() override {
    for (Reader& reader : readers_) tree_.detach(reader.cursor);
  }

  std::uint64_t advance(Reader& reader) {
    const std::uint64_t cost = tree_.advance(reader.cursor, reader.known, reader.text);
    reader.known = reader.cursor.common;
    return cost;
  }

  Held* insert(Reader& reader, Held* parent) {
    advance(reader);
    Held& held = held_.emplace_back();
    held.all = reader.text;
    held.parent = parent;
    held.begin = parent == nullptr ? 0 : common_length(parent->all, held.all);
    held.own = {held.all.begin() + held.begin, held.all.end()};
    held.tokens = held.own;
    if (parent != nullptr) ++parent->children;
    TokenTree::NewNodes memory;
    for (Buffer& buffer : memory) {
      buffer = budget_.allocate(MemoryClass::kPromptCache, TokenTree::kNodeBytes).value();
    }
    tree_.insert(held, reader.cursor, memory);
    reader.known = reader.cursor.common;
    EXPECT_EQ(reader.known, std::ssize(reader.text));
    return &held;
  }

  void erase(std::list<Held>::iterator held) {
    tree_.erase(*held);
    if (held->parent != nullptr) --static_cast<Held*>(held->parent)->children;
    std::ranges::fill(held->own, -1);  // the tree must not look at them any more
    graves_.push_back(std::move(held->own));
    held_.erase(held);
  }

  Position most_common(const Ids& text) const {
    Position most = 0;
    for (const Held& held : held_) most = std::max(most, common_length(held.all, text));
    return most;
  }

  // Every text ends where it should, and nodes are no more than needed.
  void expect_sound() {
    std::size_t nodes = 0;
    for (const Held& held : held_) {
      EXPECT_EQ(held.node->end, held.length());
      EXPECT_EQ(held.length(), std::ssize(held.all));
    }
    const TokenTree::Node* root = readers_[0].cursor.node;
    while (!tree_.is_root(*root)) root = root->parent;
    for (const auto* node = root; node != nullptr;
         node = TokenTree::following(*node, *root, true)) {
      if (tree_.is_root(*node)) continue;
      ++nodes;
      EXPECT_EQ(node->parent->end, node->begin);
      EXPECT_LT(node->begin, node->end);
      const bool needed = node->texts != nullptr ||
                          (node->first_child != nullptr && node->first_child->next != nullptr);
      EXPECT_TRUE(needed);
    }
    EXPECT_EQ(tree_.bytes(), nodes * MemoryBudget::charged_bytes(TokenTree::kNodeBytes));
    EXPECT_EQ(budget_.footprint().total_reserved(), tree_.bytes());
  }

  MemoryBudget budget_;
  std::list<Held> held_;
  std::vector<Ids> graves_;
  TokenTree tree_;
  std::array<Reader, 4> readers_;
};

TEST_F(TokenTreeTest, FindsWhatAListFindsWhateverHappens) {
  SequenceRng random(1);
  for (int step = 0; step < 20000; ++step) {
    Reader& reader = readers_[random.below(readers_.size())];
    // Another end, or more; few kinds of tokens, so that texts have much in common.
    if (random.below(3) > 0) {
      reader.text.resize(random.below(reader.text.size() + 1));
      reader.known = std::min(reader.known, static_cast<Position>(reader.text.size()));
    }
    for (std::uint64_t more = random.below(12); more > 0 && reader.text.size() < 60; --more) {
      reader.text.push_back(random.below(8) == 0 ? 1 : 0);
    }
    advance(reader);
    ASSERT_EQ(reader.cursor.common, most_common(reader.text)) << "step " << step;
    if (random.below(3) == 0 && !reader.text.empty()) {
      Held* parent = nullptr;
      if (!held_.empty() && random.below(4) > 0) {
        parent =
            &*std::next(held_.begin(), static_cast<std::ptrdiff_t>(random.below(held_.size())));
      }
      insert(reader, parent);
    }
    while (!held_.empty() && (held_.size() > 30 || random.below(4) == 0)) {
      auto held = std::next(held_.begin(), static_cast<std::ptrdiff_t>(random.below(held_.size())));
      while (held->children > 0)
        held = std::next(held) == held_.end() ? held_.begin() : std::next(held);
      erase(held);
    }
    expect_sound();
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  while (!held_.empty()) {
    erase(std::ranges::find(held_, 0, &Held::children));
  }
  EXPECT_TRUE(tree_.is_empty());
  expect_sound();
}

TEST_F(TokenTreeTest, LookingUpATextThatHasGrownCostsWhatIsNewOfIt) {
  Reader& reader = readers_[0];
  Reader& another = readers_[1];
  Held* last = nullptr;
  SequenceRng random(2);
  for (int turn = 0; turn < 500; ++turn) {
    for (int i = 0; i < 20; ++i) {
      reader.text.push_back(static_cast<TokenId>(random.below(1000)));
    }
    EXPECT_LE(advance(reader), 4U) << turn;  // the rest is in no text
    last = insert(reader, last);
    another.text = reader.text;
    EXPECT_LE(advance(another), 20U + 4U) << turn;
    EXPECT_EQ(another.cursor.common, std::ssize(reader.text));
  }
  while (!held_.empty()) erase(std::prev(held_.end()));
  EXPECT_EQ(reader.cursor.common, 0);
}

}  // namespace
}  // namespace kakeya::test
