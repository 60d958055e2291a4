// Ids back to text: the decoded piece of every token, computed once, and the state machine that
// joins pieces into valid UTF-8. Whole and streaming decoding are both this machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/types.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary.h"

namespace kakeya {

// How a tokenizer.json decodes.
struct DecoderOptions {
  // Byte-level: token texts are written in ByteCharacters. The other two are then unused.
  bool byte_level = false;
  // Tokens <0xXX> stand for bytes.
  bool byte_fallback = false;
  // Replacements within each token, in order.
  std::vector<std::pair<std::string, std::string>> replacements;
  // So many spaces at the beginning of a whole text are left out, if they are there.
  std::size_t leading_spaces = 0;
};

// The decoded form of every id. Immutable.
class DecodedPieces {
 public:
  struct Piece {
    std::string_view text;  // any bytes for a byte-level vocabulary, else valid UTF-8
    bool is_byte;           // text is the one byte of a byte-fallback token
  };

  DecodedPieces() = default;

  // No token stands for more bytes than these.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;

  // Errors: kDataLoss for a token that decodes to more than kMostBytes.
  static Result<DecodedPieces> make(const Vocabulary& vocabulary, const DecoderOptions& options);

  // U+FFFD for an id without a token.
  Piece piece(TokenId id) const;
  bool byte_level() const { return byte_level_; }
  std::size_t leading_spaces() const { return leading_spaces_; }
  // Allocated.
  std::size_t memory_bytes() const { return texts_.capacity() + spans_.capacity() * sizeof(Span); }

 private:
  struct Span {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    bool is_byte = false;
    bool used = false;
  };

  std::string texts_;
  std::vector<Span> spans_;
  bool byte_level_ = false;
  std::size_t leading_spaces_ = 0;
};

// Joins pieces. Holds back bytes until it is known how they decode:
//   byte-level      at most the 3 bytes of an unfinished character; invalid bytes become one U+FFFD
//                   for each maximal invalid part;
//   byte-fallback   a run of byte tokens that is valid UTF-8 so far, up to kMaxRunBytes. When the
//                   run ends it becomes its text, or one U+FFFD a byte if it is not valid.
class Detokenizer {
 public:
  // A longer run is closed there: its finished characters come out and the rest begins a new run.
  static constexpr std::size_t kMaxRunBytes = 4096;

  // begins_text: nothing stands in front, so that leading spaces are left out as the decoder says.
  explicit Detokenizer(const DecodedPieces& pieces, bool begins_text = true);

  // Appends the text that `id` completes. Allocates nothing but what `out` needs.
  void push(TokenId id, std::string& out);

  // Appends what is held back and starts anew.
  void finish(std::string& out);

 private:
  void leave_out_spaces(std::size_t begin, std::string& out);
  void push_run_byte(char byte, std::string& out);
  void push_byte_level(std::string_view bytes, std::string& out);
  void end_run(std::string& out);
  void emit_complete_prefix(std::string& out);

  const DecodedPieces* pieces_;
  std::size_t most_spaces_;  // to leave out of a whole text
  std::size_t spaces_left_;  // to leave out of what is still to come
  std::string held_;
  // Where the unfinished character begins in held_; everything before it is valid.
  std::size_t unfinished_ = 0;
  // The run is known to be invalid: its bytes come out as U+FFFD at once.
  bool run_is_invalid_ = false;
};

}  // namespace kakeya
