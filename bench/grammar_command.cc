// kakeya bench grammar: what holding answers to schemas costs, for a vocabulary alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/token_mask.h"
#include "bench/bench_flags.h"
#include "cli/output.h"
#include "cli/provenance.h"
#include "cli/report.h"
#include "kakeya/tokenizer.h"
#include "service/grammar/grammar_engine.h"

namespace kakeya::cli {
namespace {

using service::AnswerFormat;
using Microseconds = std::vector<double>;

struct GrammarFlags {
  ModelFlags model;
  std::vector<std::string> schemas;  // files
  std::int64_t steps = 200;
  bool json = false;
  RunConditions conditions;
};

// A name and a form.
using NamedFormat = std::pair<std::string, AnswerFormat>;

// Schemas as programs send them: records, lists, unions, dates, texts with limits and patterns.
constexpr std::pair<const char*, const char*> kSchemas[] = {
    {"person",
     R"({"type":"object","required":["name","age"],"properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130}}})"},
    {"limited text", R"({"type":"string","maxLength":1000})"},
    {"list of tags",
     R"({"type":"array","minItems":1,"maxItems":20,"items":{"enum":["a","bb","ccc","dddd"]}})"},
    {"event",
     R"({"type":"object","required":["at","kind"],"properties":{"at":{"type":"string","format":"date-time"},"kind":{"enum":["start","stop"]},"note":{"type":"string","maxLength":80}}})"},
    {"price",
     R"({"type":"object","required":["amount","currency"],"properties":{"amount":{"type":"number","minimum":0,"maximum":9999.99},"currency":{"type":"string","pattern":"^[A-Z]{3}$"}}})"},
    {"union",
     R"({"oneOf":[{"type":"object","required":["t","r"],"properties":{"t":{"const":"circle"},"r":{"type":"number"}}},{"type":"object","required":["t","w"],"properties":{"t":{"const":"square"},"w":{"type":"number"}}}]})"},
    {"tree",
     R"({"$defs":{"n":{"type":"object","required":["v"],"properties":{"v":{"type":"integer"},"c":{"type":"array","items":{"$ref":"#/$defs/n"}}}}},"$ref":"#/$defs/n"})"},
    {"map of texts", R"({"type":"object","additionalProperties":{"type":"string"}})"},
    {"contact",
     R"({"type":"object","required":["mail"],"properties":{"mail":{"type":"string","format":"email"},"host":{"type":"string","format":"hostname"},"id":{"type":"string","format":"uuid"}}})"},
};

struct GrammarTimes {
  std::string name;
  double compile_ms = 0.0;
  double again_ms = 0.0;  // compiled before
  std::size_t bytes = 0;
  Microseconds masks = {};
  Microseconds advances = {};
  std::int64_t forced = 0;  // masks that allow one token alone
  service::TextLengths lengths = {};
};

double mean_of(const Microseconds& times) {
  double sum = 0.0;
  for (const double time : times) sum += time;
  return times.empty() ? 0.0 : sum / static_cast<double>(times.size());
}

double percentile(Microseconds times, double share) {
  if (times.empty()) return 0.0;
  std::ranges::sort(times);
  return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
}

// An id that the mask allows, by chance.
TokenId any_allowed(const std::vector<std::uint32_t>& mask, std::mt19937& random) {
  for (;;) {
    const std::size_t id = random() % (mask.size() * 32);
    if (is_allowed(mask, id)) return static_cast<TokenId>(id);
    const auto word =
        std::ranges::find_if(mask.begin() + static_cast<std::ptrdiff_t>(id / 32), mask.end(),
                             [](std::uint32_t bits) { return bits != 0; });
    if (word == mask.end()) continue;
    return static_cast<TokenId>((word - mask.begin()) * 32) + std::countr_zero(*word);
  }
}

bool is_forced(const std::vector<std::uint32_t>& mask) {
  int allowed = 0;
  for (const std::uint32_t word : mask) {
    allowed += std::popcount(word);
    if (allowed > 1) return false;
  }
  return allowed == 1;
}

// Answers by chance, until there were so many tokens.
void walk(const service::CompiledGrammar& grammar,
          std::int64_t vocabulary,
          std::int64_t steps,
          GrammarTimes& times) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same answers each time
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(vocabulary + 31) / 32);
  while (std::ssize(times.masks) < steps) {
    const auto constraint = grammar.constrain({}, false);
    for (int length = 0; length < 100 && std::ssize(times.masks) < steps; ++length) {
      std::ranges::fill(mask, 0);
      const Stopwatch of_mask;
      const bool masked = constraint->fill_mask(mask);
      times.masks.push_back(1e6 * of_mask.seconds());
      if (!masked) break;  // it has ended
      if (is_forced(mask)) ++times.forced;
      const TokenId id = any_allowed(mask, random);
      const Stopwatch of_advance;
      if (!constraint->advance(id)) break;
      times.advances.push_back(1e6 * of_advance.seconds());
    }
  }
}

Result<std::vector<NamedFormat>> formats_of(const GrammarFlags& flags) {
  std::vector<NamedFormat> formats;
  for (const std::string& path : flags.schemas) {
    KAKEYA_ASSIGN_OR_RETURN(std::string text, read_text(path));
    formats.emplace_back(
        path, AnswerFormat{.kind = AnswerFormat::Kind::kJsonSchema, .text = std::move(text)});
  }
  if (!formats.empty()) return formats;
  formats.emplace_back("any JSON object", AnswerFormat{.kind = AnswerFormat::Kind::kJsonObject});
  for (const auto& [name, schema] : kSchemas) {
    formats.emplace_back(name,
                         AnswerFormat{.kind = AnswerFormat::Kind::kJsonSchema, .text = schema});
  }
  return formats;
}

Result<std::vector<GrammarTimes>> measure(const GrammarFlags& flags,
                                          service::GrammarEngine& engine,
                                          std::int64_t vocabulary) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<NamedFormat> formats, formats_of(flags));
  std::vector<GrammarTimes> all;
  for (const auto& [name, format] : formats) {
    GrammarTimes times = {.name = name};
    const Stopwatch first;
    KAKEYA_ASSIGN_OR_RETURN(const auto grammar, engine.compile(format));
    times.compile_ms = 1e3 * first.seconds();
    const Stopwatch again;
    KAKEYA_TRY(engine.compile(format));
    times.again_ms = 1e3 * again.seconds();
    times.bytes = grammar->bytes();
    KAKEYA_ASSIGN_OR_RETURN(times.lengths, service::text_lengths_of(format));
    walk(*grammar, vocabulary, flags.steps, times);
    all.push_back(std::move(times));
  }
  return all;
}

// The part of the masks that leave no choice.
double forced_share(const GrammarTimes& times) {
  return static_cast<double>(times.forced) / static_cast<double>(times.masks.size());
}

// "120", or "no end: items, string", as the rules without one are called.
std::string shown_length(const service::TextLengths& lengths) {
  if (lengths.most) return std::to_string(*lengths.most);
  return fmt::format("no end: {}", fmt::join(lengths.endless, ", "));
}

void print_times(const std::vector<GrammarTimes>& all) {
  print("{:<20} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n", "form", "compile ms",
        "again ms", "KiB", "mask us", "p50", "p99", "advance", "forced", "most characters");
  for (const GrammarTimes& times : all) {
    print("{:<20} {:>10.1f} {:>9.3f} {:>9} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.2f} {:>8.1f}%  {}\n",
          times.name, times.compile_ms, times.again_ms, times.bytes / 1024, mean_of(times.masks),
          percentile(times.masks, 0.5), percentile(times.masks, 0.99), mean_of(times.advances),
          100.0 * forced_share(times), shown_length(times.lengths));
  }
}

// Loads the one of a folder, or of a file.
Result<Tokenizer> load_tokenizer(const GrammarFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string path, model_path(flags.model));
  const bool is_folder = std::filesystem::is_directory(path);
  return Tokenizer::load(is_folder ? path + "/tokenizer.json" : path);
}

// The token that ends a turn of Gemma 4's, Qwen3's or GPT-2's. A grammar never has it as text.
TokenId stop_id(const Tokenizer& tokenizer) {
  for (const char* const text : {"<turn|>", "<|im_end|>", "<|endoftext|>"}) {
    if (const auto id = tokenizer.token_id(text)) return *id;
  }
  return 1;
}

int grammar_bench(const GrammarFlags& flags) {
  const auto tokenizer = load_tokenizer(flags);
  if (!tokenizer) return report(tokenizer.error());
  const auto vocabulary = static_cast<std::int64_t>(tokenizer->vocab_size());
  const TokenId stop = stop_id(*tokenizer);
  const Stopwatch watch;
  auto engine = service::GrammarEngine::create(*tokenizer, vocabulary, std::vector<TokenId>{stop});
  if (!engine) return report(engine.error());
  const double engine_ms = 1e3 * watch.seconds();
  const auto all = measure(flags, **engine, vocabulary);
  if (!all) return report(all.error());
  if (!flags.json) {
    print("{} tokens; the engine takes {:.0f} ms once; {} masks a form\n", vocabulary, engine_ms,
          flags.steps);
    print_times(*all);
    return kExitOk;
  }
  nlohmann::ordered_json json = provenance_json("kakeya.bench.grammar/1", flags.conditions);
  json.update({{"bench", "grammar"}, {"vocabulary", vocabulary}, {"engine_ms", engine_ms}});
  for (const GrammarTimes& times : *all) {
    json["forms"].push_back({{"name", times.name},
                             {"compile_ms", times.compile_ms},
                             {"again_ms", times.again_ms},
                             {"bytes", times.bytes},
                             {"mask_us", times.masks},
                             {"advance_us", mean_of(times.advances)},
                             {"forced", forced_share(times)}});
    nlohmann::ordered_json& form = json["forms"].back();
    if (times.lengths.most) form["most_characters"] = *times.lengths.most;
    form["endless"] = times.lengths.endless;
  }
  print_json(json);
  return kExitOk;
}

}  // namespace

void add_grammar_bench(CLI::App& bench, int& exit_code) {
  CLI::App* command =
      bench.add_subcommand("grammar", "Masks of structured output: compiling, each token");
  auto flags = std::make_shared<GrammarFlags>();
  command
      ->add_option("-m,--model", flags->model.model,
                   "A model's folder, tokenizer.json or GGUF file, of which the vocabulary is "
                   "used")
      ->type_name("DIR|FILE");
  command->add_option("--json-schema", flags->schemas, "Schemas instead of nine usual ones")
      ->type_name("FILE");
  command->add_option("--steps", flags->steps, "Masks for each form")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &exit_code] { exit_code = grammar_bench(*flags); });
}

}  // namespace kakeya::cli
