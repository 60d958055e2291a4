#include "eval/prompts/needle_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <span>
#include <utility>

#include "base/random.h"
#include "base/status.h"

namespace kakeya::eval {
namespace {

// The form that the demo model was trained on (tools/make_needle_prompts.py).
constexpr std::array kColours = {"red",   "blue",  "green",  "yellow", "white",
                                 "black", "brown", "purple", "orange", "grey"};
constexpr std::array kObjects = {"door",   "vault",  "harbor", "cellar", "attic",
                                 "garage", "castle", "drawer", "chest",  "tower"};
constexpr std::string_view kMark = "KAKEYAHAYSTACK";
// RULER's words (Hsieh et al., 2024, variable tracking).
constexpr std::string_view kChainPreface =
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n";

// The text that one prompt hides: chains of sentences that stay in order.
struct HiddenText {
  std::vector<std::vector<std::string>> chains;  // what is asked for, then distractors
  std::string question;
  std::vector<std::string> answers;
};

// A random word of the alphabet, or number, that was not drawn before.
template <typename Draw>
std::string draw_new(std::set<std::string>& drawn, Draw draw) {
  for (;;) {
    std::string value = draw();
    if (drawn.insert(value).second) return value;
  }
}

std::string list_of(const std::vector<std::string>& things) {
  std::string text;
  for (std::size_t i = 0; i < things.size(); ++i) {
    if (i > 0) text += i + 1 == things.size() ? " and " : ", ";
    text += "the " + things[i];
  }
  return text;
}

HiddenText hide_codes(const NeedleTask& task, SequenceRng& random) {
  HiddenText hidden;
  std::set<std::string> drawn;
  std::vector<std::string> asked;
  for (std::int64_t i = 0; i < task.needles + task.distractors; ++i) {
    const std::string thing = draw_new(drawn, [&] {
      return fmt::format("{} {}", kColours[random.below(kColours.size())],
                         kObjects[random.below(kObjects.size())]);
    });
    const std::string code =
        draw_new(drawn, [&] { return fmt::format("{}", 1000 + random.below(9000)); });
    hidden.chains.push_back({fmt::format("The secret code for the {} is {}.", thing, code)});
    if (i >= task.needles) continue;
    asked.push_back(thing);
    hidden.answers.push_back(code);
  }
  hidden.question = fmt::format("\n\nWhat {} for {}?",
                                asked.size() == 1 ? "is the secret code" : "are the secret codes",
                                list_of(asked));
  return hidden;
}

HiddenText hide_chains(const NeedleTask& task, SequenceRng& random) {
  HiddenText hidden;
  std::set<std::string> drawn;
  for (std::int64_t chain = 0; chain <= task.distractors; ++chain) {
    const std::string value =
        draw_new(drawn, [&] { return fmt::format("{}", 10000 + random.below(90000)); });
    std::string source = value;
    std::vector<std::string>& sentences = hidden.chains.emplace_back();
    for (std::int64_t hop = 0; hop <= task.hops; ++hop) {
      const std::string name = draw_new(drawn, [&] {
        std::string letters;
        for (int i = 0; i < 5; ++i) letters += static_cast<char>('A' + random.below(26));
        return letters;
      });
      sentences.push_back(fmt::format("VAR {} = {}.", name, source));
      source = "VAR " + name;
      if (chain == 0) hidden.answers.push_back(name);
    }
    if (chain > 0) continue;
    hidden.question = fmt::format(
        "\n\nQuestion: Find all variables that are assigned the value {} in the text above.",
        value);
  }
  return hidden;
}

// With white space of any kind as one blank, a line's end being no place of its own.
std::string collapsed(const std::string& text) {
  std::string words;
  for (const char c : text) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!blank) {
      words += c;
    } else if (!words.empty() && words.back() != ' ') {
      words += ' ';
    }
  }
  return words;
}

// Tokens that begin with a blank, as vocabularies write it.
bool begins_word(const Tokenizer& tokenizer, TokenId id) {
  const auto text = tokenizer.token_text(id);
  return text && (text->starts_with("\u2581") || text->starts_with("\u0120"));
}

SequenceRng generator_of(std::uint64_t seed, const NeedlePlace& place) {
  std::uint64_t state = seed;
  for (const std::int64_t part : {place.length, place.depth, place.index}) {
    state = SequenceRng(state ^ static_cast<std::uint64_t>(part)).next();
  }
  return SequenceRng(state);
}

Status check_task(const NeedleTask& task) {
  constexpr std::int64_t kMost = NeedlePrompts::kMostSentences;
  if (task.needles < 1 || task.distractors < 0 || task.hops < 0 || task.needles > kMost ||
      task.distractors > kMost || task.hops > kMost) {
    return invalid_argument(
        "expected 1 to {} needles, 0 to {} distractors and hops, got {}, {}, {}", kMost, kMost,
        task.needles, task.distractors, task.hops);
  }
  const std::int64_t sentences =
      task.hops == 0 ? task.needles + task.distractors : (task.hops + 1) * (task.distractors + 1);
  if (sentences > kMost) {
    return invalid_argument("expected at most {} hidden sentences, got {}", kMost, sentences);
  }
  if (task.hops > 0 && task.needles != 1) {
    return invalid_argument("expected one needle with hops, got {}", task.needles);
  }
  return {};
}

}  // namespace

Result<NeedlePrompts> NeedlePrompts::create(const ModelText& model,
                                            const std::vector<std::string>& texts,
                                            const NeedleTask& task,
                                            std::uint64_t seed) {
  KAKEYA_TRY(check_task(task));
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, model.tokenizer());
  NeedlePrompts prompts(*tokenizer, task, seed);
  for (const std::string& text : texts) {
    const std::string words = collapsed(text);
    if (words.empty()) continue;
    // With a blank in front, so that the first word is one like the others.
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                            tokenizer->encode(" " + words, {.parse_special = false}));
    prompts.text_.insert(prompts.text_.end(), ids.begin(), ids.end());
  }
  for (const TokenId id : prompts.text_) {
    prompts.word_starts_.push_back(begins_word(*tokenizer, id));
  }
  if (std::ranges::count(prompts.word_starts_, true) == 0) {
    return invalid_argument("expected texts of words for the haystack, got none");
  }
  const ChatMessage message{.role = "user", .content = std::string(kMark)};
  KAKEYA_ASSIGN_OR_RETURN(const ChatPrompt chat, model.apply_chat_template({&message, 1}, {}));
  const std::size_t mark = chat.text.find(kMark);
  if (mark == std::string::npos || chat.text.find(kMark, mark + 1) != std::string::npos) {
    return error(StatusCode::kUnimplemented,
                 "expected a chat template that writes a message once, as it is");
  }
  const std::string before =
      chat.text.substr(0, mark) + std::string(task.hops > 0 ? kChainPreface : "");
  KAKEYA_ASSIGN_OR_RETURN(prompts.before_, tokenizer->encode(before));
  prompts.after_ = chat.text.substr(mark + kMark.size());
  return prompts;
}

std::int64_t NeedlePrompts::next_word(std::int64_t index) const {
  while (!starts_word(index)) ++index;
  return index;
}

// Offset 0 is for a needle of depth 0 alone, which has no blank in front of it.
std::int64_t NeedlePrompts::nearest_word(std::int64_t first,
                                         std::int64_t offset,
                                         std::int64_t count) const {
  for (std::int64_t distance = 0; distance < count; ++distance) {
    for (const std::int64_t place : {offset - distance, offset + distance}) {
      if (place >= 1 && place <= count && starts_word(first + place)) return place;
    }
  }
  return count;
}

// One prompt before it is put together.
struct NeedlePrompts::Plan {
  struct Sentence {
    std::string text;
    std::vector<TokenId> ids;
    std::size_t chain = 0;  // sentences of a chain stay in order; the first one is asked for
    std::int64_t offset = 0;
  };
  std::vector<Sentence> sentences;
  std::vector<TokenId> after;  // question and template
  std::int64_t haystack = 0;   // tokens
  std::int64_t begin = 0;      // index of its first one in text_
};

// The offsets of a chain's sentences: random ones in order, those of the first chain behind the
// first one, which is where the depth says.
std::vector<std::int64_t> NeedlePrompts::draw_offsets(const Plan& plan,
                                                      std::size_t chain,
                                                      std::int64_t depth,
                                                      SequenceRng& random) const {
  const auto sentences = std::ranges::count(plan.sentences, chain, &Plan::Sentence::chain);
  const std::int64_t asked = (plan.haystack * depth + 50) / 100;
  const std::int64_t least = chain == 0 && sentences > 1 ? std::max<std::int64_t>(1, asked) : 1;
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i < sentences; ++i) {
    const auto room = static_cast<std::uint64_t>(plan.haystack - least + 1);
    const std::int64_t drawn = least + static_cast<std::int64_t>(random.below(room));
    offsets.push_back(nearest_word(plan.begin, drawn, plan.haystack));
  }
  std::ranges::sort(offsets);
  if (chain > 0) return offsets;
  offsets[0] = depth == 0 ? 0 : nearest_word(plan.begin, asked, plan.haystack);
  for (std::int64_t& offset : offsets) offset = std::max(offset, offsets[0]);
  return offsets;
}

NeedlePrompt NeedlePrompts::assemble(const Plan& plan, const NeedlePlace& place) const {
  NeedlePrompt prompt{.place = place,
                      .ids = before_,
                      .answers = {},
                      .sentences = std::vector<HiddenSentence>(plan.sentences.size()),
                      .haystack = plan.haystack};
  std::int64_t done = 0;
  const auto add_text = [&](std::int64_t end) {
    for (; done < end; ++done) {
      prompt.ids.push_back(
          text_[static_cast<std::size_t>((plan.begin + done) % std::ssize(text_))]);
    }
  };
  std::vector<std::size_t> order(plan.sentences.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Stable, so that a chain stays in order where its sentences meet.
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return plan.sentences[i].offset; });
  for (const std::size_t i : order) {
    const Plan::Sentence& sentence = plan.sentences[i];
    add_text(sentence.offset);
    prompt.sentences[i] = {sentence.text, std::ssize(prompt.ids), sentence.offset};
    prompt.ids.insert(prompt.ids.end(), sentence.ids.begin(), sentence.ids.end());
  }
  add_text(plan.haystack);
  prompt.message = (task_.hops > 0 ? std::string(kChainPreface) : "") +
                   tokenizer_->decode(std::span(prompt.ids).subspan(before_.size()));
  prompt.ids.insert(prompt.ids.end(), plan.after.begin(), plan.after.end());
  return prompt;
}

Result<NeedlePrompt> NeedlePrompts::make(const NeedlePlace& place) const {
  if (place.length < 1 || place.length > kMostLength || place.depth < 0 || place.depth > 100) {
    return invalid_argument(
        "expected a length of 1 to {} tokens and a depth of 0 to 100, got {}, {}", kMostLength,
        place.length, place.depth);
  }
  SequenceRng random = generator_of(seed_, place);
  const HiddenText hidden = task_.hops > 0 ? hide_chains(task_, random) : hide_codes(task_, random);
  Plan plan;
  KAKEYA_ASSIGN_OR_RETURN(plan.after, tokenizer_->encode(hidden.question + after_));
  std::int64_t frame = std::ssize(before_) + std::ssize(plan.after);
  for (std::size_t chain = 0; chain < hidden.chains.size(); ++chain) {
    for (const std::string& text : hidden.chains[chain]) {
      const bool front = place.depth == 0 && plan.sentences.empty();
      KAKEYA_ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                              tokenizer_->encode((front ? "" : " ") + text));
      frame += std::ssize(ids);
      plan.sentences.push_back({text, std::move(ids), chain, 0});
    }
  }
  plan.haystack = place.length - frame;
  if (plan.haystack < 1) {
    return invalid_argument("expected a length of {} tokens or more for these needles, got {}",
                            frame + 1, place.length);
  }
  // The haystack ends with a whole word; where it begins nobody looks.
  const std::int64_t size = std::ssize(text_);
  const auto drawn = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size)));
  plan.begin = (next_word(drawn + plan.haystack) - plan.haystack) % size;
  std::size_t next = 0;
  for (std::size_t chain = 0; chain < hidden.chains.size(); ++chain) {
    for (const std::int64_t offset : draw_offsets(plan, chain, place.depth, random)) {
      plan.sentences[next++].offset = offset;
    }
  }
  NeedlePrompt prompt = assemble(plan, place);
  prompt.message += hidden.question;
  prompt.answers = hidden.answers;
  return prompt;
}

bool contains_whole(std::string_view text, std::string_view value) {
  if (value.empty()) return false;
  const auto at = [&](std::size_t index) {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0;
  };
  const bool number = std::isdigit(static_cast<unsigned char>(value.front())) != 0;
  for (std::size_t found = text.find(value); found != std::string_view::npos;
       found = text.find(value, found + 1)) {
    const std::size_t end = found + value.size();
    // An index before the text wraps around and is beyond it.
    if (std::isalnum(at(found - 1)) != 0 || std::isalnum(at(end)) != 0) continue;
    // "1.4821" and "4821.5" are other numbers.
    if (number && at(found - 1) == '.' && std::isdigit(at(found - 2)) != 0) continue;
    if (number && at(end) == '.' && std::isdigit(at(end + 1)) != 0) continue;
    return true;
  }
  return false;
}

std::int64_t answers_in(const NeedlePrompt& prompt, std::string_view reply) {
  return std::ranges::count_if(
      prompt.answers, [&](const std::string& answer) { return contains_whole(reply, answer); });
}

}  // namespace kakeya::eval
