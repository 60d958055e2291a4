#include "text/jinja/token_stream.h"

#include <algorithm>

#include "base/status.h"

namespace kakeya::jinja {

Token TokenStream::take() {
  Token token = current();
  if (index_ + 1 < tokens_.size()) ++index_;
  return token;
}

bool TokenStream::at_operator(std::string_view text) const {
  return at(TokenKind::kOperator) && current().text == text;
}

bool TokenStream::at_name(std::string_view text) const {
  return at(TokenKind::kName) && current().text == text;
}

bool TokenStream::at_any_name(std::initializer_list<std::string_view> names) const {
  return std::ranges::any_of(names, [&](std::string_view name) { return at_name(name); });
}

bool TokenStream::skip_operator(std::string_view text) {
  if (!at_operator(text)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view text) {
  if (!at_name(text)) return false;
  take();
  return true;
}

Status TokenStream::expect_operator(std::string_view text) {
  if (!skip_operator(text)) return unexpected(fmt::format("'{}'", text));
  return {};
}

Status TokenStream::expect_name(std::string_view text) {
  if (!skip_name(text)) return unexpected(fmt::format("'{}'", text));
  return {};
}

Status TokenStream::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) return unexpected(what);
  take();
  return {};
}

Result<std::string> TokenStream::expect_any_name() {
  if (!at(TokenKind::kName)) return unexpected("a name");
  return take().text;
}

Unexpected TokenStream::unexpected(std::string_view wanted) const {
  std::string found;
  switch (current().kind) {
    case TokenKind::kEnd:
      found = "the end of the template";
      break;
    case TokenKind::kOutputEnd:
      found = "the end of the output tag";
      break;
    case TokenKind::kBlockEnd:
      found = "the end of the block tag";
      break;
    case TokenKind::kText:
      found = "text";
      break;
    default:
      found = fmt::format("'{}'", current().text.substr(0, 40));
      break;
  }
  return syntax_error(line(), fmt::format("expected {} but found {}", wanted, found));
}

Unexpected TokenStream::too_deep() const {
  return error(StatusCode::kResourceExhausted,
               "[chat template] line {}: expressions or blocks nest more than {} levels deep",
               line(), kMaxDepth);
}

}  // namespace kakeya::jinja
