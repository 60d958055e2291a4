#include "service/infill.h"

#include <string>
#include <utility>

#include "service/answer_request.h"

namespace kakeya::service {
namespace {

struct InfillNames {
  const char* prefix;
  const char* suffix;
  const char* middle;
};

constexpr InfillNames kInfillNames[] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                        {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
                                        {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"}};

// Tokens behind which no text of the same file comes.
constexpr const char* kInfillEnds[] = {
    "<|endoftext|>", "<|fim_pad|>", "<fim_pad>",     "<fim-pad>",   "<|file_separator|>",
    "<|file_sep|>",  "<file_sep>",  "<|repo_name|>", "<repo_name>", "\u2581<EOT>"};

}  // namespace

std::optional<InfillTokens> find_infill_tokens(const Tokenizer& tokenizer) {
  for (const InfillNames& names : kInfillNames) {
    const auto prefix = tokenizer.token_id(names.prefix);
    const auto suffix = tokenizer.token_id(names.suffix);
    const auto middle = tokenizer.token_id(names.middle);
    if (!prefix || !suffix || !middle) continue;
    InfillTokens tokens = {*prefix, *suffix, *middle, {*prefix, *suffix, *middle}};
    for (const char* const end : kInfillEnds) {
      if (const auto id = tokenizer.token_id(end)) tokens.ends.push_back(*id);
    }
    return tokens;
  }
  return {};
}

Outcome<std::vector<TokenId>> encode_infill(const Engine& engine,
                                            std::string_view before,
                                            std::string_view after,
                                            bool add_special,
                                            std::int64_t most_tokens) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  const auto marks = find_infill_tokens(**tokenizer);
  if (!marks) {
    return tl::unexpected(
        Refusal{.message = "suffix: expected a model with tokens for what stands between two texts "
                           "(<|fim_prefix|> and its like), got one without",
                .parameter = "suffix"});
  }
  std::vector<TokenId> ids;
  if (add_special && engine.bos_id() >= 0) ids.push_back(engine.bos_id());
  const auto add = [&](TokenId mark, std::string_view text,
                       const std::string& parameter) -> Outcome<void> {
    const auto encoded = encode_plain(engine, text, most_tokens, parameter);
    if (!encoded) return tl::unexpected(encoded.error());
    ids.push_back(mark);
    ids.insert(ids.end(), encoded->begin(), encoded->end());
    return {};
  };
  if (auto added = add(marks->prefix, before, "prompt"); !added) {
    return tl::unexpected(std::move(added).error());
  }
  if (auto added = add(marks->suffix, after, "suffix"); !added) {
    return tl::unexpected(std::move(added).error());
  }
  ids.push_back(marks->middle);
  const std::int64_t tokens = std::ssize(ids);
  if (tokens > most_tokens) return tl::unexpected(too_long(most_tokens, tokens, true, "prompt"));
  return ids;
}

}  // namespace kakeya::service
