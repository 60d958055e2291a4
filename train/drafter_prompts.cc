#include "drafter_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "base/random.h"
#include "base/status.h"

namespace kakeya::train {
namespace {

constexpr std::array kWords = {
    "river",  "stone",  "garden", "paper", "window", "yellow", "simple", "market", "winter",
    "silver", "music",  "bridge", "apple", "doctor", "table",  "forest", "letter", "orange",
    "clock",  "summer", "animal", "house", "train",  "coffee", "island", "number", "school",
    "bottle", "flower", "street", "cloud", "engine", "pocket", "rabbit", "castle", "mirror"};
constexpr std::array kNames = {"Anna",  "Ben",   "Carla", "David", "Emma",  "Felix",
                               "Grace", "Henry", "Ivan",  "Julia", "Karim", "Lena"};
constexpr std::array kCities = {"Paris", "Tokyo", "Cairo", "Lima",  "Oslo",
                                "Rome",  "Delhi", "Quito", "Dublin"};
constexpr std::array kTasks = {"adds two numbers",
                               "squares every item in a list",
                               "reverses a list",
                               "counts the vowels in a string",
                               "returns the largest item of a list",
                               "sums a list",
                               "joins two strings",
                               "checks if a list is empty"};
constexpr std::array kTopics = {"rain",  "bread", "the moon",   "trees", "ships",
                                "money", "bees",  "the winter", "trains"};

constexpr std::array kOpenings = {"Write a short story about", "Tell me about", "Explain",
                                  "Write two sentences about"};

class Writer {
 public:
  explicit Writer(std::uint64_t seed) : rng_(seed) {}

  // Words and numbers are drawn first: compilers differ in the order of arguments.
  std::string request() {
    const std::uint64_t kind = rng_.below(12);
    const std::uint64_t a = rng_.below(80);
    const std::uint64_t b = 2 + rng_.below(40);
    const std::uint64_t code = 1000 + rng_.below(9000);
    const char* const word = one_of(kWords);
    const char* const name = one_of(kNames);
    const char* const city = one_of(kCities);
    const char* const about = one_of(kOpenings);
    const char* const topic = one_of(kTopics);
    const std::string list = words(kind == 3 ? " " : ", ");
    switch (kind) {
      case 0:
        return fmt::format("Count from {} to {}.", a, a + 3 + b % 15);
      case 1:
        return fmt::format("What is {} + {}?", a, b);
      case 2:
        return fmt::format("Spell the word {}.", word);
      case 3:
        return fmt::format("Repeat: {}", list);
      case 4:
        return fmt::format("Reverse this list: {}", list);
      case 5:
        return fmt::format("Sort these words: {}", list);
      case 6:
        return fmt::format("What is the last word of this list: {}?", list);
      case 7:
        return fmt::format("Write a JSON object for {}, who is {} years old and lives in {}.", name,
                           a + 1, city);
      case 8:
        return function();
      case 9:
        return fmt::format(
            "The secret code for the {0} door is {1}. {2} went to {3}. What is the secret code for "
            "the {0} door?",
            word, code, name, city);
      case 10:
        return fmt::format("{0} has {1} apples and buys {2} more. How many does {0} have?", name,
                           a + 2, b);
      default:
        return fmt::format("{} {} and {}.", about, topic, word);
    }
  }

 private:
  template <std::size_t n>
  const char* one_of(const std::array<const char*, n>& words) {
    return words[rng_.below(n)];
  }
  std::string words(std::string_view between) {
    std::string text = one_of(kWords);
    for (std::uint64_t left = 2 + rng_.below(5); left > 0; --left) {
      text += between;
      text += one_of(kWords);
    }
    return text;
  }
  std::string function() {
    switch (rng_.below(4)) {
      case 0:
        return fmt::format("Write a Python function that {}.", one_of(kTasks));
      case 1:
        return fmt::format("Write a Python function that multiplies a number by {}.",
                           2 + rng_.below(98));
      case 2:
        return fmt::format("Write a Python function that checks if a number is divisible by {}.",
                           2 + rng_.below(98));
      default:
        return fmt::format("Write a Python function that keeps the items larger than {}.",
                           2 + rng_.below(98));
    }
  }
  SequenceRng rng_;
};

Result<std::string> prompt_of_line(std::string_view line) {
  if (line.front() != '{') return std::string(line);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("prompt") || !json["prompt"].is_string()) {
    return invalid_argument("expected a JSON object with a text named prompt");
  }
  return json["prompt"].get<std::string>();
}

}  // namespace

std::vector<std::string> make_requests(std::int64_t count, std::uint64_t seed) {
  Writer writer(seed);
  std::vector<std::string> requests;
  std::set<std::string> known;
  for (std::int64_t tries = 0; tries < 20 * count && std::ssize(requests) < count; ++tries) {
    std::string request = writer.request();
    if (known.insert(request).second) requests.push_back(std::move(request));
  }
  return requests;
}

Result<std::vector<std::string>> read_prompts(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::vector<std::string> prompts;
  std::set<std::string> known;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    auto prompt = prompt_of_line(line);
    if (!prompt) return Unexpected(prompt.error().with_context(fmt::format("{}:{}", path, number)));
    if (known.insert(*prompt).second) prompts.push_back(std::move(*prompt));
  }
  return prompts;
}

Result<std::vector<std::vector<TokenId>>> encode_requests(
    Engine& engine, const std::vector<std::string>& requests) {
  std::vector<std::vector<TokenId>> encoded;
  for (const std::string& request : requests) {
    const ChatMessage message{.role = "user", .content = request};
    auto ids = engine.encode_chat({&message, 1});
    // Without a template, as it is.
    if (!ids && ids.error().code() == StatusCode::kFailedPrecondition) {
      ids = engine.encode_text(request, {.parse_special = false});
    }
    if (!ids) return Unexpected(ids.error());
    encoded.push_back(std::move(ids).value());
  }
  return encoded;
}

}  // namespace kakeya::train
