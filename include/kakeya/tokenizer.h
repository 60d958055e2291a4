// Text to token ids and back, as described by a Hugging Face tokenizer.json or the metadata of a
// GGUF file: byte-fallback BPE (Gemma, Llama 2) and byte-level BPE (GPT-2, Qwen, Llama 3). Adds no
// beginning-of-sequence token of its own: the chat template or the caller writes it
// (Engine::bos_id()). Moved from, a tokenizer can only be assigned to or destroyed.
// docs/tokenizer.md lists the supported components.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct EncodeOptions {
  // True: text that spells a special token (for example "<bos>") becomes that token. Set it to
  // false for text from an untrusted source that must not be able to write control tokens.
  // Added tokens that are not special match either way.
  bool parse_special = true;

  // More ids than these are refused, before any work where the length of the text tells.
  std::size_t most_tokens = std::numeric_limits<std::size_t>::max();

  // Parts of the text, in order, that spell no special token, not even with what is around them
  // (Engine::apply_chat_template() names them). The text must be UTF-8 then.
  std::span<const TextRange> plain = {};
};

// Immutable after loading; every const member may be called from any thread at once.
class Tokenizer {
 public:
  // Reads and checks a tokenizer.json, or the tokenizer of a GGUF file (of a split model the first
  // part).
  //
  // Errors: kNotFound or kInvalidArgument if the file cannot be read, kDataLoss if it is not a
  // valid tokenizer.json (syntax, ids out of range, merges of unknown tokens), kUnimplemented if it
  // uses a component that is not supported, whose type is then named.
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json);

  // A tokenizer that was moved from may only be assigned to or destroyed.
  Tokenizer(Tokenizer&& other) noexcept;
  Tokenizer& operator=(Tokenizer&& other) noexcept;
  ~Tokenizer();

  // Each maximal invalid part of the UTF-8 input is read as one U+FFFD.
  // Errors: kResourceExhausted for a text of more than options.most_tokens; kInvalidArgument for
  // options.plain out of order or of a text that is not UTF-8; kDataLoss if the
  // tokenizer's own expressions or replacements run out of bounds on this text, which those of
  // published tokenizers never do.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;

  // The first part of the text behind `begin` that spells a special token; the leftmost, and the
  // longest there.
  std::optional<TextRange> find_special(std::string_view text, std::size_t begin) const;

  // A text of so many bytes has at least so many tokens. 0 where tokens may stand for any length.
  std::size_t least_tokens(std::size_t bytes) const;

  // The text of a whole sequence; special tokens are left out if skip_special. An id that no token
  // has, negative ones included, decodes to U+FFFD. begins_text: false for ids that go on with a
  // text. Some tokenizers put a space in front of a text and leave it out again when they decode;
  // in the middle of a text a space is a space.
  std::string decode(std::span<const TokenId> ids,
                     bool skip_special = true,
                     bool begins_text = true) const;

  // One more than the largest id, which may be more than the number of tokens.
  std::size_t vocab_size() const;

  // Bytes that it keeps allocated, which no memory budget is charged with; a few pages of small
  // parts are left out.
  std::size_t memory_bytes() const;

  // The id of a token by its exact text in the vocabulary ("▁the", "<bos>").
  std::optional<TokenId> token_id(std::string_view text) const;

  // The token's text as the vocabulary writes it, which is not its decoded text; nothing for an
  // unused id. The view lives as long as the tokenizer.
  std::optional<std::string_view> token_text(TokenId id) const;

  // The bytes that the token stands for, where decode() may have U+FFFD for a part of a character;
  // empty for an unused id.
  std::string token_bytes(TokenId id) const;

  // True if a beginning-of-sequence token goes in front of a text that no template wrote, where
  // tokenizer_config.json does not say: by the post-processor's template, else as Hugging Face's
  // classes for such vocabularies do (byte fallback: yes; byte level: no).
  bool begins_texts() const;

  // True if decode leaves the token out.
  bool is_special(TokenId id) const;

 private:
  friend class StreamDecoder;
  struct Impl;

  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

// Decodes ids one at a time. The pieces, put together with that of finish(), are exactly
// Tokenizer::decode of all the ids, and no piece ends within a UTF-8 character.
//
// A run of byte tokens of a byte-fallback vocabulary decodes as a whole: to its text if all of it
// is valid UTF-8, otherwise to one U+FFFD a byte. A run that is valid so far is therefore held back
// until it ends, is found invalid, or reaches 4,096 bytes, where both decoders close it.
//
// One thread at a time. The tokenizer must outlive it.
class StreamDecoder {
 public:
  // The flags are those of Tokenizer::decode().
  explicit StreamDecoder(const Tokenizer& tokenizer,
                         bool skip_special = true,
                         bool begins_text = true);
  StreamDecoder(StreamDecoder&& other) noexcept;
  StreamDecoder& operator=(StreamDecoder&& other) noexcept;
  ~StreamDecoder();

  // The text that became complete with this id; may be empty.
  std::string push(TokenId id);

  // Appends it to `out` instead; allocates nothing unless `out` has to grow.
  void push(TokenId id, std::string& out);

  // The text still held back. The decoder is then as new.
  std::string finish();
  void finish(std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kakeya
