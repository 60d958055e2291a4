#include "text/plain_texts.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>

#include "text/utf8.h"

namespace kakeya {
namespace {

// A mark is a number between two noncharacters, which no text that is exchanged may hold (Unicode
// 23.7).
constexpr std::string_view kMarkBegin = "\uFDD0";
constexpr std::string_view kMarkEnd = "\uFDD1";

// The number of the mark that `text` begins with, and the mark's size.
struct Mark {
  std::size_t number = 0;
  std::size_t size = 0;
};

std::optional<Mark> read_mark(std::string_view text) {
  Mark mark;
  const char* const digits = text.data() + kMarkBegin.size();
  const auto [end, failure] = std::from_chars(digits, text.data() + text.size(), mark.number);
  const auto size = static_cast<std::size_t>(end - text.data());
  if (failure != std::errc() || !text.substr(size).starts_with(kMarkEnd)) return std::nullopt;
  mark.size = size + kMarkEnd.size();
  return mark;
}

}  // namespace

std::string PlainTexts::hide(std::string_view text) {
  std::string valid;
  append_valid_utf8(text, valid);
  text = valid;
  std::string result;
  std::size_t begin = 0;
  std::size_t mark = text.find(kMarkBegin);
  while (begin < text.size()) {
    if (mark != std::string_view::npos && mark < begin) mark = text.find(kMarkBegin, begin);
    const auto special = tokenizer_->find_special(text.substr(0, mark), begin);
    if (!special && mark == std::string_view::npos) break;
    const TextRange range = special.value_or(TextRange{mark, mark + kMarkBegin.size()});
    result += text.substr(begin, range.begin - begin);
    result.append(kMarkBegin).append(std::to_string(hidden_.size())).append(kMarkEnd);
    hidden_.emplace_back(text.substr(range.begin, range.end - range.begin));
    begin = range.end;
  }
  return result.append(text.substr(std::min(begin, text.size())));
}

ChatPrompt PlainTexts::show(std::string_view rendered) const {
  ChatPrompt shown;
  std::size_t begin = 0;
  while (!hidden_.empty()) {
    const std::size_t place = rendered.find(kMarkBegin, begin);
    if (place == std::string_view::npos) break;
    shown.text += rendered.substr(begin, place - begin);
    const auto mark = read_mark(rendered.substr(place));
    // A template may have cut a mark, or have noncharacters of its own.
    const bool known = mark && mark->number < hidden_.size();
    const std::string_view text = known ? hidden_[mark->number] : kMarkBegin;
    if (known) shown.plain.push_back({shown.text.size(), shown.text.size() + text.size()});
    shown.text += text;
    begin = place + (known ? mark->size : kMarkBegin.size());
  }
  shown.text += rendered.substr(begin);
  return shown;
}

}  // namespace kakeya
