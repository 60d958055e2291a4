// The pipeline: added tokens, normaliser, pre-tokenizer, BPE; and the public decoding calls.
#include "kakeya/tokenizer.h"

#include "base/mapped_file.h"
#include "base/status.h"
#include "formats/gguf_checkpoint.h"
#include "text/added_tokens.h"
#include "text/detokenizer.h"
#include "text/tokenizer_gguf.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace kakeya {

struct Tokenizer::Impl {
  // Buffers of one call of encode.
  struct Scratch {
    std::string normalized;
    std::string byte_characters;
    std::vector<std::string_view> words;
    Bpe::Scratch bpe;
  };

  explicit Impl(TokenizerParts from)
      : parts(std::move(from)), pieces(parts.vocabulary, parts.decoder) {
    special.resize(parts.vocabulary.size());
    std::vector<AddedTokenMatcher::Token> raw;
    std::vector<AddedTokenMatcher::Token> normalized;
    std::vector<std::string> normalized_texts;
    normalized_texts.reserve(parts.added_tokens.size());
    for (const AddedToken& token : parts.added_tokens) {
      special[static_cast<std::size_t>(token.id)] = token.special;
      if (!token.normalized) {
        raw.push_back({token.text, token.id, token.special});
        continue;
      }
      normalized_texts.push_back(parts.normalizer.apply(token.text));
      normalized.push_back({normalized_texts.back(), token.id, token.special});
    }
    raw_matcher = AddedTokenMatcher(raw);
    normalized_matcher = AddedTokenMatcher(normalized);
  }

  // Calls on_token for each added token in `text` and on_text for each stretch between them.
  template <typename OnText, typename OnToken>
  static void split_at_added_tokens(const AddedTokenMatcher& matcher,
                                    std::string_view text,
                                    bool match_special,
                                    const OnText& on_text,
                                    const OnToken& on_token) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const auto match = matcher.find(text, begin, match_special);
      const std::size_t end = match ? match->offset : text.size();
      if (end > begin) on_text(text.substr(begin, end - begin));
      if (!match) return;
      on_token(match->id);
      begin = match->offset + match->size;
    }
  }

  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const {
    if (parts.byte_level) {
      scratch.byte_characters.clear();
      byte_characters.append_encoded(word, scratch.byte_characters);
      word = scratch.byte_characters;
    }
    if (parts.ignore_merges) {
      if (const auto id = parts.vocabulary.find(word)) {
        ids.push_back(*id);
        return;
      }
    }
    parts.bpe.encode(word, scratch.bpe, ids);
  }

  void encode(std::string_view text, bool match_special, std::vector<TokenId>& ids) const {
    Scratch scratch;
    const auto on_token = [&](TokenId id) { ids.push_back(id); };
    const auto on_normalized = [&](std::string_view normalized) {
      parts.pre_tokenizer.split(normalized, scratch.words);
      for (const std::string_view word : scratch.words) encode_word(word, scratch, ids);
    };
    const auto on_raw = [&](std::string_view raw) {
      scratch.normalized = parts.normalizer.apply(raw);
      split_at_added_tokens(normalized_matcher, scratch.normalized, match_special, on_normalized,
                            on_token);
    };
    split_at_added_tokens(raw_matcher, text, match_special, on_raw, on_token);
  }

  TokenizerParts parts;
  DecodedPieces pieces;
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;
  ByteCharacters byte_characters;
  std::vector<bool> special;  // by id
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  if (is_gguf_path(path)) {
    KAKEYA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
    KAKEYA_ASSIGN_OR_RETURN(TokenizerParts parts, read_gguf_tokenizer(file));
    return Tokenizer(std::make_unique<const Impl>(std::move(parts)));
  }
  auto file = MappedFile::open(path);
  if (!file) return Unexpected(file.error());
  const auto bytes = file->bytes();
  auto tokenizer = parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!tokenizer) return Unexpected(tokenizer.error().with_context(path));
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string_view json) {
  auto parts = parse_tokenizer_json(json);
  if (!parts) return Unexpected(parts.error());
  return Tokenizer(std::make_unique<const Impl>(std::move(*parts)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<TokenId> ids;
  if (is_valid_utf8(text)) {
    impl_->encode(text, options.parse_special, ids);
  } else {
    std::string valid;
    append_valid_utf8(text, valid);
    impl_->encode(valid, options.parse_special, ids);
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  Detokenizer detokenizer(impl_->pieces);
  std::string text;
  for (const TokenId id : ids) {
    if (skip_special && is_special(id)) continue;
    detokenizer.push(id, text);
  }
  detokenizer.finish(text);
  return text;
}

std::size_t Tokenizer::vocab_size() const {
  return impl_->parts.vocabulary.size();
}

std::optional<TokenId> Tokenizer::token_id(std::string_view text) const {
  return impl_->parts.vocabulary.find(text);
}

std::optional<std::string_view> Tokenizer::token_text(TokenId id) const {
  return impl_->parts.vocabulary.text(id);
}

bool Tokenizer::begins_texts() const {
  return impl_->parts.special_token_in_front.value_or(!impl_->parts.byte_level);
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < impl_->special.size() &&
         impl_->special[static_cast<std::size_t>(id)];
}

struct StreamDecoder::State {
  const Tokenizer::Impl* tokenizer;
  Detokenizer detokenizer;
  bool skip_special;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(new State{tokenizer.impl_.get(), Detokenizer(tokenizer.impl_->pieces), skip_special}) {
}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

void StreamDecoder::push(TokenId id, std::string& out) {
  const auto& special = state_->tokenizer->special;
  const bool in_range = id >= 0 && static_cast<std::size_t>(id) < special.size();
  if (state_->skip_special && in_range && special[static_cast<std::size_t>(id)]) return;
  state_->detokenizer.push(id, out);
}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  push(id, out);
  return out;
}

void StreamDecoder::finish(std::string& out) {
  state_->detokenizer.finish(out);
}

std::string StreamDecoder::finish() {
  std::string out;
  finish(out);
  return out;
}

}  // namespace kakeya
