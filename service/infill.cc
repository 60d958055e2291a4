#include "service/infill.h"

#include <cstddef>
#include <string>
#include <tuple>
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

struct FileNames {
  const char* project;
  const char* file;
};

constexpr FileNames kFileNames[] = {
    {"<|repo_name|>", "<|file_sep|>"}, {"<repo_name>", "<file_sep>"}, {"<reponame>", "<filename>"}};

// Tokens behind which no text of the same file comes.
constexpr const char* kInfillEnds[] = {
    "<|endoftext|>", "<|fim_pad|>", "<fim_pad>",     "<fim-pad>",   "<|file_separator|>",
    "<|file_sep|>",  "<file_sep>",  "<|repo_name|>", "<repo_name>", "\u2581<EOT>"};

using Ids = std::vector<TokenId>;

void append(Ids& ids, const Ids& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

// Makes one prompt.
class InfillEncoder {
 public:
  InfillEncoder(const Engine& engine, InfillTokens marks, std::int64_t most_tokens)
      : engine_(engine), marks_(std::move(marks)), most_tokens_(most_tokens) {}

  // [prefix] text [suffix] suffix [middle] what the answer goes on from.
  Outcome<Ids> encode_texts(const RawPrompt& prompt) const {
    Ids ids;
    for (const auto& [mark, text, parameter] :
         {std::tuple(marks_.prefix, &prompt.text, "prompt"),
          std::tuple(marks_.suffix, &*prompt.suffix, "suffix"),
          std::tuple(marks_.middle, &prompt.begun, "prompt")}) {
      auto encoded = encode_plain(engine_, *text, most_tokens_, parameter);
      if (!encoded) return encoded;
      ids.push_back(mark);
      append(ids, *encoded);
    }
    return ids;
  }

  // The last ones of the files that take at most `room` tokens, with what stands around them;
  // nothing if there is no room for one.
  Ids encode_files(const std::vector<OtherFile>& files, std::int64_t room) const {
    const bool are_marked = marks_.project && marks_.file;
    Ids head;
    Ids own;  // in front of the file that is being written
    if (are_marked) {
      head = encode_marked(*marks_.project, "project\n");
      own = encode_marked(*marks_.file, "current\n");
    }
    room -= std::ssize(head) + std::ssize(own);
    std::vector<Ids> taken;
    for (std::size_t i = files.size(); i-- > 0 && room > 0;) {
      const std::string text = files[i].name + "\n" + files[i].text + "\n";
      // A text that is too long to be encoded does not fit.
      auto ids = are_marked ? encode_marked(*marks_.file, text)
                            : encode_plain(engine_, text, room, "input_extra").value_or(Ids());
      if (ids.empty() || std::ssize(ids) > room) break;
      room -= std::ssize(ids);
      taken.push_back(std::move(ids));
    }
    if (taken.empty()) return {};
    for (std::size_t i = taken.size(); i-- > 0;) append(head, taken[i]);
    append(head, own);
    return head;
  }

 private:
  // Nothing for a text that is too long.
  Ids encode_marked(TokenId mark, const std::string& text) const {
    const auto encoded = encode_plain(engine_, text, most_tokens_, "input_extra");
    if (!encoded) return {};
    Ids ids = {mark};
    append(ids, *encoded);
    return ids;
  }

  const Engine& engine_;
  const InfillTokens marks_;
  const std::int64_t most_tokens_;
};

}  // namespace

std::optional<InfillTokens> find_infill_tokens(const Tokenizer& tokenizer) {
  for (const InfillNames& names : kInfillNames) {
    const auto prefix = tokenizer.token_id(names.prefix);
    const auto suffix = tokenizer.token_id(names.suffix);
    const auto middle = tokenizer.token_id(names.middle);
    if (!prefix || !suffix || !middle) continue;
    InfillTokens tokens = {.prefix = *prefix,
                           .suffix = *suffix,
                           .middle = *middle,
                           .ends = {*prefix, *suffix, *middle}};
    for (const FileNames& files : kFileNames) {
      if (tokens.project && tokens.file) break;
      tokens.project = tokenizer.token_id(files.project);
      tokens.file = tokenizer.token_id(files.file);
    }
    for (const char* const end : kInfillEnds) {
      if (const auto id = tokenizer.token_id(end)) tokens.ends.push_back(*id);
    }
    return tokens;
  }
  return {};
}

Outcome<std::vector<TokenId>> encode_infill(const Engine& engine,
                                            const RawPrompt& prompt,
                                            bool add_special,
                                            std::int64_t most_tokens,
                                            std::int64_t answer_tokens) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  auto marks = find_infill_tokens(**tokenizer);
  if (!marks) {
    return tl::unexpected(
        Refusal{.message = "suffix: expected a model with tokens for what stands between two texts "
                           "(<|fim_prefix|> and its like), got one without",
                .parameter = "suffix"});
  }
  const InfillEncoder encoder(engine, *std::move(marks), most_tokens);
  const auto texts = encoder.encode_texts(prompt);
  if (!texts) return texts;
  Ids ids;
  if (add_special && engine.bos_id() >= 0) ids.push_back(engine.bos_id());
  const std::int64_t tokens = std::ssize(ids) + std::ssize(*texts);
  if (tokens > most_tokens) return tl::unexpected(too_long(most_tokens, tokens, true, "prompt"));
  if (!prompt.files.empty()) {
    append(ids, encoder.encode_files(prompt.files, most_tokens + 1 - tokens - answer_tokens));
  }
  append(ids, *texts);
  return ids;
}

}  // namespace kakeya::service
