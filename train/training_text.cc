#include "training_text.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "base/status.h"
#include "convert/text_windows.h"
#include "held_back.h"

namespace kakeya::train {
namespace {

// Every so many documents one is for validation.
constexpr std::size_t kValidationShare = 10;
// Most requests of one round: as many as run at once.
constexpr std::size_t kRound = 64;

// As different as texts of a few words can be: the rest of a document is the model's own.
constexpr std::array kBeginnings = {
    "The",       "In the year", "She",          "He said",   "It was", "A",  "When the",
    "There are", "= History =", "def ",         "import ",   "class ", "# ", "for i in range(",
    "1.",        "Once upon a", "According to", "The first", "I",      "We", "However,",
    "This is",   "At the end",  "\"",
};
constexpr std::array kRequests = {
    "Hello!",
    "Write a short story.",
    "What is the capital of France?",
    "Write a Python function that reverses a list.",
    "Count from 3 to 20.",
    "Explain how rain is made.",
    "Write a JSON object for a person.",
    "Anna has 5 apples and buys 7 more. How many does she have?",
};

using Ids = std::vector<TokenId>;

Result<std::vector<Ids>> encode_beginnings(Engine& engine) {
  std::vector<Ids> beginnings;
  for (const char* text : kBeginnings) {
    KAKEYA_ASSIGN_OR_RETURN(Ids ids, engine.encode_text(text, {.parse_special = false}));
    beginnings.push_back(std::move(ids));
  }
  for (const char* text : kRequests) {
    const ChatMessage message{.role = "user", .content = text};
    auto ids = engine.encode_chat({&message, 1});
    if (!ids) break;  // a model without a template
    beginnings.push_back(std::move(ids).value());
  }
  return beginnings;
}

// `count` documents, number `first` and following.
Result<std::vector<Ids>> sample_round(Engine& engine,
                                      const std::vector<Ids>& beginnings,
                                      std::size_t first,
                                      std::size_t count,
                                      const TextOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const auto scheduler, engine.create_scheduler({}));
  const SessionOptions session = {
      .context = options.window, .max_rows = options.window, .drafting = false};
  // Far from the numbers of other seeds.
  const std::uint64_t seed = options.seed * 0x9e3779b97f4a7c15U;
  std::vector<Ids> documents(count);
  Status failed;
  for (std::size_t i = 0; i < count; ++i) {
    Ids prompt = beginnings[(first + i) % beginnings.size()];
    if (std::ssize(prompt) >= options.window) continue;
    documents[i] = prompt;
    Request request{.prompt = std::move(prompt),
                    .generate = {.max_tokens = options.window - std::ssize(documents[i]),
                                 .sampling = {.temperature = 1.0F, .seed = seed + first + i},
                                 .draft_length = 0},
                    .session = session};
    request.on_end = [&documents, &failed, i](RequestId /*id*/, const RequestResult& result) {
      if (!result.status && failed) failed = result.status;
      documents[i].insert(documents[i].end(), result.generated.ids.begin(),
                          result.generated.ids.end());
    };
    KAKEYA_TRY(scheduler->add(std::move(request)));
  }
  for (bool more = true; more;) {
    KAKEYA_ASSIGN_OR_RETURN(more, scheduler->step());
  }
  KAKEYA_TRY(std::move(failed));
  return documents;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

std::int64_t count_tokens(std::span<const std::vector<TokenId>> documents) {
  std::int64_t tokens = 0;
  for (const Ids& ids : documents) tokens += std::ssize(ids);
  return tokens;
}

Result<TrainingText> sample_own_text(Engine& engine, const TextOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<Ids> beginnings, encode_beginnings(engine));
  TrainingText text;
  std::int64_t tokens = 0;
  // A model whose texts have 8 tokens on the mean is still heard out.
  const auto most = static_cast<std::size_t>(options.tokens / 8) + kRound;
  std::size_t documents = 0;
  if (options.progress) options.progress(0, options.tokens);
  while (tokens < options.tokens) {
    if (documents > most) {
      return invalid_argument(
          "expected the model to write {} tokens, got {} in {} texts: give it some (--texts)",
          options.tokens, tokens, documents);
    }
    // No more than are wanted if none ends early.
    const auto wanted = static_cast<std::size_t>((options.tokens - tokens) / options.window) + 1;
    KAKEYA_ASSIGN_OR_RETURN(
        std::vector<Ids> round,
        sample_round(engine, beginnings, documents, std::min(wanted, kRound), options));
    for (Ids& ids : round) {
      const bool held_out = documents++ % kValidationShare == kValidationShare - 1;
      if (tokens >= options.tokens || ids.empty()) continue;
      tokens += std::ssize(ids);
      (held_out ? text.validation : text.training).push_back(std::move(ids));
    }
    if (options.progress) options.progress(std::min(tokens, options.tokens), options.tokens);
  }
  leave_out_held_back(text.training, text.validation);
  return text;
}

Result<TrainingText> read_training_files(Engine& engine,
                                         std::span<const std::string> files,
                                         const TextOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  const std::optional<TokenId> bos =
      engine.bos_id() >= 0 ? std::optional(engine.bos_id()) : std::nullopt;
  TrainingText text;
  const auto share = static_cast<std::size_t>(options.tokens / std::ssize(files));
  for (const std::string& file : files) {
    KAKEYA_ASSIGN_OR_RETURN(const MappedFile content, MappedFile::open(file));
    KAKEYA_ASSIGN_OR_RETURN(Ids ids, tokenizer->encode(text_of(content), {.parse_special = false}));
    if (ids.size() > share) ids.resize(share);
    std::vector<Ids> windows = cut_into_windows(ids, bos, options.window);
    if (windows.size() < 2) {
      return invalid_argument("{}: expected a text of more than {} tokens, got {}", file,
                              options.window, ids.size());
    }
    const std::size_t held_out = std::max<std::size_t>(windows.size() / kValidationShare, 1);
    const std::size_t trained = windows.size() - held_out;
    for (std::size_t i = 0; i < windows.size(); ++i) {
      (i < trained ? text.training : text.validation).push_back(std::move(windows[i]));
    }
  }
  leave_out_held_back(text.training, text.validation);
  return text;
}

}  // namespace kakeya::train
