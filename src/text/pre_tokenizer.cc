#include "text/pre_tokenizer.h"

#include <algorithm>

#include "base/status.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

struct Piece {
  std::size_t begin;
  std::size_t end;
  bool matched;
};

void find_literal(std::string_view text,
                  std::string_view pattern,
                  std::vector<TextRange>& matches) {
  if (pattern.empty()) return;
  for (std::size_t i = text.find(pattern); i != std::string_view::npos;) {
    matches.push_back({i, i + pattern.size()});
    i = text.find(pattern, i + pattern.size());
  }
}

// The matches and the text between them, in order, covering the text.
Result<std::vector<Piece>> cover(std::string_view text, const Splitter& splitter, MatchTime& time) {
  std::vector<TextRange> matches;
  if (const auto* literal = std::get_if<std::string>(&splitter.pattern)) {
    find_literal(text, *literal, matches);
  } else {
    KAKEYA_TRY(std::get<Regex>(splitter.pattern).find_all(text, time, matches));
  }
  std::vector<Piece> pieces;
  pieces.reserve(matches.size() * 2 + 1);
  std::size_t end = 0;
  for (const TextRange& match : matches) {
    if (match.begin > end) pieces.push_back({end, match.begin, splitter.invert});
    pieces.push_back({match.begin, match.end, !splitter.invert});
    end = match.end;
  }
  if (end < text.size()) pieces.push_back({end, text.size(), splitter.invert});
  return pieces;
}

// Joins the pieces as the behaviour says; the result covers all text but what is removed.
void apply_behavior(SplitBehavior behavior, std::vector<Piece>& pieces) {
  if (behavior == SplitBehavior::kIsolated) return;
  if (behavior == SplitBehavior::kRemoved) {
    std::erase_if(pieces, [](const Piece& piece) { return piece.matched; });
    return;
  }
  std::vector<Piece> joined;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool previous_matched = i > 0 && pieces[i - 1].matched;
    bool join = false;
    if (i > 0 && behavior == SplitBehavior::kMergedWithPrevious) {
      join = pieces[i].matched && !previous_matched;
    } else if (i > 0 && behavior == SplitBehavior::kMergedWithNext) {
      join = previous_matched && !pieces[i].matched;
    } else if (i > 0) {
      join = pieces[i].matched == previous_matched;
    }
    if (join) {
      joined.back().end = pieces[i].end;
    } else {
      joined.push_back(pieces[i]);
    }
  }
  pieces = std::move(joined);
}

}  // namespace

Status PreTokenizer::split(std::string_view text,
                           MatchTime& time,
                           std::vector<std::string_view>& words) const {
  words.clear();
  if (text.empty()) return {};
  words.push_back(text);
  std::vector<std::string_view> next;
  for (const Splitter& splitter : splitters_) {
    next.clear();
    for (const std::string_view word : words) {
      KAKEYA_ASSIGN_OR_RETURN(std::vector<Piece> pieces, cover(word, splitter, time));
      apply_behavior(splitter.behavior, pieces);
      for (const Piece& piece : pieces) {
        next.push_back(word.substr(piece.begin, piece.end - piece.begin));
      }
    }
    words.swap(next);
  }
  return {};
}

bool PreTokenizer::keeps_everything() const {
  return std::none_of(splitters_.begin(), splitters_.end(), [](const Splitter& splitter) {
    return splitter.behavior == SplitBehavior::kRemoved;
  });
}

ByteCharacters::ByteCharacters() {
  bytes_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    const char32_t code_point = printable ? static_cast<char32_t>(byte) : next++;
    append_utf8(code_point, characters_[byte]);
    bytes_[code_point] = byte;
  }
}

void ByteCharacters::append_encoded(std::string_view text, std::string& out) const {
  for (const char c : text) out += characters_[static_cast<unsigned char>(c)];
}

void ByteCharacters::append_decoded(std::string_view text, std::string& out) const {
  const std::size_t size_before = out.size();
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    const bool known = step.valid && step.code_point < bytes_.size();
    const int byte = known ? bytes_[step.code_point] : -1;
    if (byte < 0) {
      out.resize(size_before);
      out += text;
      return;
    }
    out += static_cast<char>(byte);
    i += step.size;
  }
}

}  // namespace kakeya
