// The parser's view of the tokens: one token of look-ahead and the depth that nesting has reached.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/lexer.h"

namespace kakeya::jinja {

class TokenStream {
 public:
  // Counted over parentheses, operators and blocks together.
  static constexpr std::size_t kMaxDepth = 200;

  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[index_]; }
  const Token& next() const { return tokens_[index_ + (index_ + 1 < tokens_.size())]; }
  int line() const { return current().line; }

  // The current token, passed.
  Token take();

  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view text) const;
  bool at_name(std::string_view text) const;
  bool at_any_name(std::initializer_list<std::string_view> names) const;

  // Passes the token if it is there.
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);

  Status expect_operator(std::string_view text);
  Status expect_name(std::string_view text);
  Status expect(TokenKind kind, std::string_view what);
  Result<std::string> expect_any_name();

  Unexpected unexpected(std::string_view wanted) const;
  Unexpected too_deep() const;

  // Counts one level of nesting while it lives.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) { ++stream_.depth_; }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    bool too_deep() const { return stream_.depth_ > kMaxDepth; }

   private:
    TokenStream& stream_;
  };

 private:
  std::vector<Token> tokens_;
  std::size_t index_ = 0;
  std::size_t depth_ = 0;
};

}  // namespace kakeya::jinja
