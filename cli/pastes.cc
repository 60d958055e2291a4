#include "cli/pastes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/terminal.h"
#include "text/utf8.h"

namespace kakeya::cli {

std::optional<std::string> Pastes::keep(std::string text, std::string_view line) {
  while (text.size() > most_bytes_ - bytes_) {
    const auto oldest = std::ranges::find_if(pastes_, [&](const auto& entry) {
      return line.find(entry.second.placeholder) == std::string_view::npos;
    });
    if (oldest == pastes_.end()) return std::nullopt;
    bytes_ -= oldest->second.text.size();
    pastes_.erase(oldest);
  }
  const auto line_ends = std::ranges::count(text, '\n');
  const auto lines = text.ends_with('\n') ? line_ends : line_ends + 1;
  const int number = ++last_number_;
  const std::string placeholder = fmt::format("[pasted {}: {} line{}, {} bytes]", number, lines,
                                              lines == 1 ? "" : "s", text.size());
  bytes_ += text.size();
  pastes_.emplace(number, Paste{placeholder, std::move(text)});
  return placeholder;
}

std::string Pastes::expand(std::string_view line) const {
  constexpr std::string_view kBegin = "[pasted ";
  std::string whole;
  while (!line.empty()) {
    const std::size_t begin = line.find(kBegin);
    whole += line.substr(0, begin);
    if (begin == std::string_view::npos) break;
    line.remove_prefix(begin);
    const auto meant = std::ranges::find_if(
        pastes_, [&](const auto& entry) { return line.starts_with(entry.second.placeholder); });
    if (meant != pastes_.end()) {
      whole += meant->second.text;
      line.remove_prefix(meant->second.placeholder.size());
    } else {
      whole += kBegin;
      line.remove_prefix(kBegin.size());
    }
  }
  return whole;
}

bool is_typed_as_it_is(std::string_view text) {
  constexpr std::size_t kMostTyped = 200;
  return text.size() <= kMostTyped && text.find('\n') == std::string_view::npos &&
         is_valid_utf8(text) && without_controls(text) == text;
}

}  // namespace kakeya::cli
