// The pipeline: added tokens, normaliser, pre-tokenizer, BPE; and the public decoding calls.
#include "kakeya/tokenizer.h"

#include <algorithm>
#include <utility>

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
    std::string marked;
    std::string byte_characters;
    std::vector<std::string_view> words;
    Bpe::Scratch bpe;
  };

  static Result<std::unique_ptr<const Impl>> make(TokenizerParts from) {
    auto impl = std::make_unique<Impl>();
    impl->parts = std::move(from);
    KAKEYA_ASSIGN_OR_RETURN(impl->pieces,
                            DecodedPieces::make(impl->parts.vocabulary, impl->parts.decoder));
    KAKEYA_TRY(impl->take_added_tokens());
    impl->bytes_a_token = impl->most_bytes_a_token();
    return impl;
  }

  Status take_added_tokens() {
    special.resize(parts.vocabulary.size());
    std::vector<AddedTokenMatcher::Token> raw;
    std::vector<AddedTokenMatcher::Token> normalized;
    std::vector<AddedTokenMatcher::Token> specials;
    std::vector<std::string> normalized_texts;
    normalized_texts.reserve(parts.added_tokens.size());
    for (const AddedToken& token : parts.added_tokens) {
      special[static_cast<std::size_t>(token.id)] = token.special;
      if (token.special) specials.push_back({token.text, token.id, true});
      if (!token.normalized) {
        raw.push_back({token.text, token.id, token.special});
        continue;
      }
      KAKEYA_ASSIGN_OR_RETURN(std::string text, parts.normalizer.apply(token.text));
      longest_normalized = std::max(longest_normalized, text.size());
      normalized_texts.push_back(std::move(text));
      normalized.push_back({normalized_texts.back(), token.id, token.special});
    }
    raw_matcher = AddedTokenMatcher(raw);
    normalized_matcher = AddedTokenMatcher(normalized);
    special_matcher = AddedTokenMatcher(specials);
    return {};
  }

  // True if each byte has a token of its own in a byte-level vocabulary.
  bool knows_all_bytes() const {
    for (int byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      std::string character;
      byte_characters.append_encoded({&text, 1}, character);
      if (!parts.vocabulary.find(character)) return false;
    }
    return true;
  }

  // How many bytes of a text a token stands for at most; 0: any number.
  std::size_t most_bytes_a_token() const {
    const bool keeps = parts.byte_level ? knows_all_bytes() : parts.bpe.keeps_every_byte();
    if (!keeps || !parts.pre_tokenizer.keeps_everything()) return 0;
    std::size_t longest = std::max<std::size_t>(1, longest_normalized);
    for (std::size_t i = 0; i < parts.vocabulary.size(); ++i) {
      const auto text = parts.vocabulary.text(static_cast<TokenId>(i));
      if (text) longest = std::max(longest, text->size());
    }
    return longest * parts.normalizer.most_shrink();
  }

  // Calls on_token for each added token in `text` and on_text for each stretch between them, with
  // its place.
  template <typename OnText, typename OnToken>
  static Status split_at_added_tokens(const AddedTokenMatcher& matcher,
                                      std::string_view text,
                                      bool match_special,
                                      std::span<const TextRange> plain,
                                      const OnText& on_text,
                                      const OnToken& on_token) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      while (!plain.empty() && plain.front().end <= begin) plain = plain.subspan(1);
      const auto match = matcher.find(text, begin, match_special, plain);
      const TextRange stretch = {begin, match ? match->offset : text.size()};
      if (stretch.end > begin) KAKEYA_TRY(on_text(stretch));
      if (!match) return {};
      KAKEYA_TRY(on_token(match->id));
      begin = match->offset + match->size;
    }
    return {};
  }

  // The spaces of `text` as parts.metaspace says.
  std::string mark_spaces(std::string_view text, bool is_first) const {
    const Metaspace& metaspace = *parts.metaspace;
    std::string marked;
    for (const char c : text) {
      if (c == ' ') {
        marked += metaspace.replacement;
      } else {
        marked += c;
      }
    }
    const bool prefixed = metaspace.prefix == Metaspace::Prefix::kEach ||
                          (metaspace.prefix == Metaspace::Prefix::kFirst && is_first);
    if (!prefixed || marked.starts_with(metaspace.replacement)) return marked;
    return metaspace.replacement + marked;
  }

  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const {
    if (parts.byte_level) {
      scratch.byte_characters.clear();
      byte_characters.append_encoded(word, scratch.byte_characters);
      word = scratch.byte_characters;
    }
    if (parts.ignore_merges) {
      const auto id = parts.vocabulary.find(word);
      if (id && !special[static_cast<std::size_t>(*id)]) {
        ids.push_back(*id);
        return;
      }
    }
    parts.bpe.encode(word, scratch.bpe, ids);
  }

  Status encode(std::string_view text,
                const EncodeOptions& options,
                std::vector<TokenId>& ids) const {
    Scratch scratch;
    MatchTime time(text.size());
    const auto check_size = [&]() -> Status {
      if (ids.size() <= options.most_tokens) return {};
      return too_many(text.size(), options.most_tokens);
    };
    const auto on_token = [&](TokenId id) {
      ids.push_back(id);
      return check_size();
    };
    bool is_first = false;  // nothing of the text stands in front of scratch.normalized
    const auto on_normalized = [&](TextRange stretch) -> Status {
      std::string_view normalized = part(scratch.normalized, stretch);
      if (parts.metaspace) {
        scratch.marked = mark_spaces(normalized, is_first && stretch.begin == 0);
        normalized = scratch.marked;
      }
      KAKEYA_TRY(parts.pre_tokenizer.split(normalized, time, scratch.words));
      for (const std::string_view word : scratch.words) {
        encode_word(word, scratch, ids);
        KAKEYA_TRY(check_size());
      }
      return {};
    };
    const auto on_raw = [&](TextRange stretch) -> Status {
      KAKEYA_ASSIGN_OR_RETURN(scratch.normalized, parts.normalizer.apply(part(text, stretch)));
      is_first = stretch.begin == 0;
      // A normaliser moves places, so that a plain part makes all around it plain.
      const bool match_special = options.parse_special && !overlaps(options.plain, stretch);
      return split_at_added_tokens(normalized_matcher, scratch.normalized, match_special, {},
                                   on_normalized, on_token);
    };
    return split_at_added_tokens(raw_matcher, text, options.parse_special, options.plain, on_raw,
                                 on_token);
  }

  // `ranges` are in order.
  static bool overlaps(std::span<const TextRange> ranges, TextRange stretch) {
    const auto next = std::ranges::upper_bound(ranges, stretch.begin, {}, &TextRange::end);
    return next != ranges.end() && next->begin < stretch.end;
  }

  static std::string_view part(std::string_view text, TextRange range) {
    return text.substr(range.begin, range.end - range.begin);
  }

  static Unexpected too_many(std::size_t bytes, std::size_t most_tokens) {
    return error(StatusCode::kResourceExhausted,
                 "a text of {} bytes: expected at most {} tokens, got more", bytes, most_tokens);
  }

  TokenizerParts parts;
  DecodedPieces pieces;
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;
  AddedTokenMatcher special_matcher;  // of special ones alone, by the texts that people write
  ByteCharacters byte_characters;
  std::vector<bool> special;           // by id
  std::size_t longest_normalized = 0;  // bytes of an added token in normalised text
  std::size_t bytes_a_token = 0;       // most_bytes_a_token()
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  if (is_gguf_path(path)) {
    KAKEYA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
    KAKEYA_ASSIGN_OR_RETURN(TokenizerParts parts, read_gguf_tokenizer(file));
    auto impl = Impl::make(std::move(parts));
    if (!impl) return Unexpected(impl.error().with_context(path));
    return Tokenizer(std::move(*impl));
  }
  auto file = MappedFile::open(path);
  if (!file) return Unexpected(file.error());
  const auto bytes = file->bytes();
  auto tokenizer = parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!tokenizer) return Unexpected(tokenizer.error().with_context(path));
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string_view json) {
  KAKEYA_ASSIGN_OR_RETURN(TokenizerParts parts, parse_tokenizer_json(json));
  KAKEYA_ASSIGN_OR_RETURN(auto impl, Impl::make(std::move(parts)));
  return Tokenizer(std::move(impl));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (least_tokens(text.size()) > options.most_tokens) {
    return Impl::too_many(text.size(), options.most_tokens);
  }
  std::size_t end = 0;
  for (const TextRange plain : options.plain) {
    if (plain.begin < end || plain.end < plain.begin || text.size() < plain.end) {
      return invalid_argument(
          "a plain part [{}, {}) of a text of {} bytes: expected parts in order", plain.begin,
          plain.end, text.size());
    }
    end = plain.end;
  }
  std::vector<TokenId> ids;
  if (is_valid_utf8(text)) {
    KAKEYA_TRY(impl_->encode(text, options, ids));
  } else if (!options.plain.empty()) {
    return invalid_argument("a text with plain parts: expected UTF-8, got other bytes");
  } else {
    std::string valid;
    append_valid_utf8(text, valid);
    KAKEYA_TRY(impl_->encode(valid, options, ids));
  }
  return ids;
}

std::optional<TextRange> Tokenizer::find_special(std::string_view text, std::size_t begin) const {
  const auto match = impl_->special_matcher.find(text, begin, true);
  if (!match) return std::nullopt;
  return TextRange{match->offset, match->offset + match->size};
}

std::size_t Tokenizer::least_tokens(std::size_t bytes) const {
  const std::size_t most = impl_->bytes_a_token;
  return most == 0 ? 0 : bytes / most + (bytes % most > 0 ? 1 : 0);
}

std::string Tokenizer::decode(std::span<const TokenId> ids,
                              bool skip_special,
                              bool begins_text) const {
  Detokenizer detokenizer(impl_->pieces, begins_text);
  std::string text;
  for (const TokenId id : ids) {
    if (skip_special && is_special(id)) continue;
    detokenizer.push(id, text);
  }
  detokenizer.finish(text);
  return text;
}

std::string Tokenizer::token_bytes(TokenId id) const {
  if (!token_text(id)) return "";
  return std::string(impl_->pieces.piece(id).text);
}

std::size_t Tokenizer::vocab_size() const {
  return impl_->parts.vocabulary.size();
}

std::size_t Tokenizer::memory_bytes() const {
  std::size_t bytes = impl_->parts.vocabulary.memory_bytes() + impl_->parts.bpe.memory_bytes() +
                      impl_->pieces.memory_bytes() + impl_->raw_matcher.memory_bytes() +
                      impl_->normalized_matcher.memory_bytes() +
                      impl_->special_matcher.memory_bytes() + impl_->special.capacity() / 8;
  for (const AddedToken& token : impl_->parts.added_tokens) {
    bytes += sizeof(AddedToken) + token.text.capacity();
  }
  return bytes;
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

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special, bool begins_text)
    : state_(new State{tokenizer.impl_.get(), Detokenizer(tokenizer.impl_->pieces, begins_text),
                       skip_special}) {}
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
