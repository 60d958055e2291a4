#include "convert/tokenizer_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/random.h"
#include "base/status.h"
#include "base/temporary_folder.h"
#include "formats/gguf.h"
#include "formats/printable.h"
#include "kakeya/tokenizer.h"
#include "text/tokenizer_gguf.h"

namespace kakeya {
namespace {

// A page of things that tokenizers are at odds about: numbers, blanks, line ends, contractions,
// marks that combine, scripts without blanks, symbols beyond 16 bits, code, letters of width,
// control characters.
constexpr std::string_view kPage =
    "Hello, world! It's 12345 o'clock; they'LL pay 1,234.50 by 2031-07-09.\n"
    "  two  blanks   three\ttab\t\ttabs \n\n\nthree line ends\r\nand one of another kind \r"
    "def f(x):\n    return {\"a\": x**2, 'b': [1,2,3]}  # comment\n\t\tif (a!=b&&c<=d) ++i;\n"
    "na\xC3\xAFve cafe\xCC\x81 stra\xC3\x9F"
    "e \xC4\xB0stanbul \xEF\xAC\x81ne \xE2\x85\xA7 x\xC2\xB2 \xEF\xBC\xA1\xEF\xBC\x91\n"
    "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x81\xAE\xE6\x96\x87 "
    "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 \xD1\x80\xD1\x83\xD1\x81\xD1\x81\xD0\xBA\xD0\xB8\xD0\xB9 "
    "\xD8\xA7\xD9\x84\xD8\xB9\xD8\xB1\xD8\xA8\xD9\x8A\xD8\xA9 "
    "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80\n"
    "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB \xE2\x82\xAC"
    "5 \xE2\x80\x9Cquoted\xE2\x80\x9D \xE2\x80\x94 \xE2\x80\xA6 \xE2\x96\x81 \xC2\xA0 \xE2\x80\x83 "
    "\x01\x7F end ";

constexpr int kRandomTexts = 64;
constexpr int kTokensOfAText = 32;

// The expressions that cut text, wherever they stand in "pre_tokenizer".
void collect_patterns(const nlohmann::json& value, std::vector<std::string>& patterns) {
  if (!value.is_structured()) return;
  const auto pattern = value.is_object() ? value.find("Regex") : value.end();
  if (pattern != value.end() && pattern->is_string()) patterns.push_back(*pattern);
  for (const nlohmann::json& item : value) collect_patterns(item, patterns);
}

// Only "pre_tokenizer" is kept: vocabularies are large.
std::vector<std::string> patterns_of(std::string_view json) {
  const auto keep = [](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    return depth != 1 || event != nlohmann::json::parse_event_t::key || parsed == "pre_tokenizer";
  };
  const nlohmann::json root = nlohmann::json::parse(json, keep, false);
  std::vector<std::string> patterns;
  if (root.is_object() && root.contains("pre_tokenizer")) {
    collect_patterns(root["pre_tokenizer"], patterns);
  }
  return patterns;
}

class TextComparison {
 public:
  TextComparison(const std::string& path, const Tokenizer& source, const Tokenizer& written)
      : path_(path), source_(source), written_(written) {}

  Status same_tokens() const {
    // Readers of GGUF know rows of the embedding without a token as tokens, too.
    for (std::size_t i = 0; i < source_.vocab_size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (!source_.token_text(id)) continue;
      const std::string expected = source_.decode({&id, 1}, false);
      const std::string got = written_.decode({&id, 1}, false);
      if (got != expected)
        return differs(fmt::format("token {}", id), quoted(expected), quoted(got));
    }
    return {};
  }

  Status same_ids(std::string_view text) const {
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<TokenId> expected, source_.encode(text));
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<TokenId> got, written_.encode(text));
    const auto [left, right] =
        std::mismatch(expected.begin(), expected.end(), got.begin(), got.end());
    if (left == expected.end() && right == got.end()) return same_text(expected);
    // The text before the difference says where it is.
    const std::vector<TokenId> before(expected.begin(), left);
    const std::size_t place = std::min(source_.decode(before, false).size(), text.size());
    return differs(fmt::format("the text {}", quoted(text.substr(place))),
                   ids({left, expected.end()}), ids({right, got.end()}));
  }

  // Some tokenizers put a space behind special tokens, some only in front of a whole text.
  Status same_between_special() const {
    constexpr std::size_t kMostTokens = 4;
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < source_.vocab_size() && tokens.size() < kMostTokens; ++i) {
      const auto id = static_cast<TokenId>(i);
      if (source_.is_special(id)) tokens.emplace_back(source_.token_text(id).value_or(""));
    }
    std::string text = "a";
    for (const std::string& token : tokens) {
      text += fmt::format("{}a b {} a {}{}\na", token, token, token, token);
    }
    return same_ids(text);
  }

  Status same_random_texts() const {
    SequenceRng random(1);
    for (int i = 0; i < kRandomTexts; ++i) {
      std::string text;
      for (int j = 0; j < kTokensOfAText; ++j) {
        const auto id = static_cast<TokenId>(random.below(source_.vocab_size()));
        if (!source_.is_special(id)) text += source_.decode({&id, 1}, false);
      }
      KAKEYA_TRY(same_ids(text));
    }
    return {};
  }

 private:
  Status same_text(const std::vector<TokenId>& ids) const {
    const std::string expected = source_.decode(ids, false);
    const std::string got = written_.decode(ids, false);
    if (got == expected) return {};
    const auto place = static_cast<std::size_t>(
        std::mismatch(expected.begin(), expected.end(), got.begin(), got.end()).first -
        expected.begin());
    return differs("decoding", quoted(std::string_view(expected).substr(place)),
                   quoted(std::string_view(got).substr(std::min(place, got.size()))));
  }

  Status differs(const std::string& what, const std::string& here, const std::string& there) const {
    return error(
        StatusCode::kUnimplemented,
        "{}: expected a tokenizer that a GGUF file can name (docs/tokenizer.md), got one that "
        "differs in {}: {} here, {} there",
        path_, what, here, there);
  }

  static std::string quoted(std::string_view text) {
    return fmt::format("\"{}\"", printable(text.substr(0, 24)));
  }
  static std::string ids(std::span<const TokenId> all) {
    return fmt::format("[{}]", fmt::join(all.first(std::min<std::size_t>(all.size(), 4)), ", "));
  }

  const std::string& path_;
  const Tokenizer& source_;
  const Tokenizer& written_;
};

Status same_patterns(const std::string& path, std::string_view source, std::string_view written) {
  const std::vector<std::string> expected = patterns_of(written);
  const std::vector<std::string> got = patterns_of(source);
  if (got == expected) return {};
  const auto text = [](const std::vector<std::string>& patterns) {
    return patterns.empty() ? "none" : fmt::format("\"{}\"", printable(patterns.front()));
  };
  return error(
      StatusCode::kUnimplemented,
      "{}: pre_tokenizer: not one that a GGUF file can name (docs/tokenizer.md): expected the "
      "expression {}, got {}",
      path, text(expected), text(got));
}

}  // namespace

Status check_gguf_tokenizer(const std::string& path, std::span<const GgufMetadata> metadata) {
  const auto folder = TemporaryFolder::create();
  if (!folder) {
    return error(StatusCode::kUnavailable,
                 "{}: cannot make a temporary folder to check its tokenizer in (TMPDIR)", path);
  }
  const std::string file = folder->path() + "/tokenizer.gguf";
  std::vector<GgufMetadata> all = {{"general.architecture", std::string("tokenizer")}};
  all.insert(all.end(), metadata.begin(), metadata.end());
  KAKEYA_TRY(write_gguf(file, all, {}));
  KAKEYA_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::open(file));
  KAKEYA_ASSIGN_OR_RETURN(const std::string written_json, gguf_tokenizer_json(gguf));
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer written, Tokenizer::parse(written_json));
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile source_file, MappedFile::open(path));
  const std::string_view source_json(reinterpret_cast<const char*>(source_file.bytes().data()),
                                     source_file.bytes().size());
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer source, Tokenizer::load(path));
  KAKEYA_TRY(same_patterns(path, source_json, written_json));
  const TextComparison comparison(path, source, written);
  KAKEYA_TRY(comparison.same_tokens());
  KAKEYA_TRY(comparison.same_ids(kPage));
  KAKEYA_TRY(comparison.same_between_special());
  return comparison.same_random_texts();
}

}  // namespace kakeya
