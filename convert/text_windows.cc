#include "convert/text_windows.h"

#include <algorithm>
#include <utility>

namespace kakeya {

std::vector<std::vector<TokenId>> cut_into_windows(std::span<const TokenId> ids,
                                                   std::optional<TokenId> bos,
                                                   std::int64_t length) {
  const auto room = static_cast<std::size_t>(bos ? length - 1 : length);
  std::vector<std::vector<TokenId>> windows;
  while (!ids.empty()) {
    const auto piece = ids.first(std::min(room, ids.size()));
    ids = ids.subspan(piece.size());
    std::vector<TokenId> window;
    if (bos) window.push_back(*bos);
    window.insert(window.end(), piece.begin(), piece.end());
    if (window.size() >= 2) windows.push_back(std::move(window));
  }
  return windows;
}

}  // namespace kakeya
