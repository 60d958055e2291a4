#include "text/detokenizer.h"

#include <charconv>
#include <optional>

#include "base/status.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

// The value of a byte-fallback token "<0xXX>".
std::optional<char> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  unsigned value = 0;
  const auto parsed = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

// Returns whether the result is short enough.
bool replace_all(std::string_view from, std::string_view to, std::string& text) {
  if (from.empty()) return true;
  std::string replaced;
  std::size_t begin = 0;
  for (std::size_t i = text.find(from); i != std::string::npos; i = text.find(from, begin)) {
    replaced.append(text, begin, i - begin).append(to);
    begin = i + from.size();
    if (replaced.size() > DecodedPieces::kMostBytes) return false;
  }
  if (begin > 0) text = replaced.append(text, begin);
  return text.size() <= DecodedPieces::kMostBytes;
}

}  // namespace

Result<DecodedPieces> DecodedPieces::make(const Vocabulary& vocabulary,
                                          const DecoderOptions& options) {
  DecodedPieces pieces;
  pieces.spans_.resize(vocabulary.size());
  pieces.byte_level_ = options.byte_level;
  pieces.leading_spaces_ = options.leading_spaces;
  const ByteCharacters byte_characters;
  std::string decoded;
  for (std::size_t i = 0; i < pieces.spans_.size(); ++i) {
    const auto text = vocabulary.text(static_cast<TokenId>(i));
    if (!text) continue;
    decoded.clear();
    bool is_byte = false;
    if (options.byte_level) {
      byte_characters.append_decoded(*text, decoded);
    } else {
      decoded = *text;
      for (const auto& [from, to] : options.replacements) {
        if (replace_all(from, to, decoded)) continue;
        return data_loss(
            "[tokenizer] decoder: expected at most {} bytes of a token, got more of {}", kMostBytes,
            i);
      }
      const auto byte = options.byte_fallback ? parse_byte_token(decoded) : std::nullopt;
      if (byte) decoded.assign(1, *byte);
      is_byte = byte.has_value();
    }
    pieces.spans_[i] = {pieces.texts_.size(), static_cast<std::uint32_t>(decoded.size()), is_byte,
                        true};
    pieces.texts_ += decoded;
  }
  return pieces;
}

DecodedPieces::Piece DecodedPieces::piece(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= spans_.size())
    return {kReplacementCharacter, false};
  const Span& span = spans_[static_cast<std::size_t>(id)];
  if (!span.used) return {kReplacementCharacter, false};
  return {std::string_view(texts_).substr(span.offset, span.size), span.is_byte};
}

Detokenizer::Detokenizer(const DecodedPieces& pieces, bool begins_text)
    : pieces_(&pieces),
      most_spaces_(begins_text ? pieces.leading_spaces() : 0),
      spaces_left_(most_spaces_) {
  held_.reserve(kMaxRunBytes);
}

// Leaves spaces out of what stands in `out` from `begin`, as long as nothing else came before.
void Detokenizer::leave_out_spaces(std::size_t begin, std::string& out) {
  if (spaces_left_ == 0 || out.size() == begin) return;
  std::size_t end = begin;
  while (end < out.size() && out[end] == ' ' && end - begin < spaces_left_) ++end;
  spaces_left_ = end == out.size() ? spaces_left_ - (end - begin) : 0;
  out.erase(begin, end - begin);
}

void Detokenizer::push(TokenId id, std::string& out) {
  const DecodedPieces::Piece piece = pieces_->piece(id);
  const std::size_t begin = out.size();
  if (pieces_->byte_level()) {
    push_byte_level(piece.text, out);
  } else if (piece.is_byte) {
    push_run_byte(piece.text[0], out);
  } else {
    end_run(out);
    out += piece.text;
  }
  leave_out_spaces(begin, out);
}

void Detokenizer::finish(std::string& out) {
  const std::size_t begin = out.size();
  if (pieces_->byte_level()) {
    if (!held_.empty()) out += kReplacementCharacter;
    held_.clear();
  } else {
    end_run(out);
  }
  leave_out_spaces(begin, out);
  spaces_left_ = most_spaces_;
}

void Detokenizer::push_byte_level(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    held_ += byte;
    // At most two rounds: an invalid part, then the byte that broke it.
    while (!held_.empty()) {
      const Utf8Step step = read_utf8(held_, 0);
      if (step.truncated) break;
      out += step.valid ? std::string_view(held_).substr(0, step.size) : kReplacementCharacter;
      held_.erase(0, step.size);
    }
  }
}

void Detokenizer::push_run_byte(char byte, std::string& out) {
  if (run_is_invalid_) {
    out += kReplacementCharacter;
    return;
  }
  held_ += byte;
  const Utf8Step step = read_utf8(held_, unfinished_);
  if (step.valid) {
    unfinished_ = held_.size();
  } else if (!step.truncated) {
    run_is_invalid_ = true;
    for (std::size_t i = 0; i < held_.size(); ++i) out += kReplacementCharacter;
    held_.clear();
    unfinished_ = 0;
  }
  if (held_.size() >= kMaxRunBytes) emit_complete_prefix(out);
}

void Detokenizer::emit_complete_prefix(std::string& out) {
  out.append(held_, 0, unfinished_);
  held_.erase(0, unfinished_);
  unfinished_ = 0;
}

void Detokenizer::end_run(std::string& out) {
  if (unfinished_ == held_.size()) {
    out += held_;
  } else {
    for (std::size_t i = 0; i < held_.size(); ++i) out += kReplacementCharacter;
  }
  held_.clear();
  unfinished_ = 0;
  run_is_invalid_ = false;
}

}  // namespace kakeya
