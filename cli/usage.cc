#include "cli/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace kakeya::cli {
namespace {

// Lower-case letters and digits: what is left of a name however its words are joined.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c == '-' || c == '_') continue;
    letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return letters;
}

// Levenshtein's distance: letters to put in, take out or change.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, diagonal + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// The command below `app` that `word` may have been meant for; empty if none is near.
std::string nearest_command(const CLI::App& app, const std::string& word) {
  constexpr std::size_t kLongest = 64;
  if (word.size() > kLongest) return "";
  std::string nearest;
  // Names are short: of three letters one may be wrong, of six two.
  std::size_t least = std::min<std::size_t>(word.size() / 3, 2) + 1;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::size_t distance = edit_distance(letters_of(word), letters_of(command->get_name()));
    if (distance >= least) continue;
    least = distance;
    nearest = command->get_name();
  }
  return nearest;
}

// The flag that `word` may have been meant for; empty if none is near. A name that begins with the
// word (--temp) counts as near as one letter.
std::string nearest_flag(const CLI::App& command, std::string_view word) {
  constexpr std::size_t kNear = 2;
  constexpr std::size_t kLongest = 64;
  if (!word.starts_with("--")) return "";
  const std::string typed = letters_of(word.substr(2, word.find('=') - 2));
  if (typed.size() <= kNear || typed.size() > kLongest) return "";
  std::string nearest;
  std::size_t least = kNear + 1;
  for (const CLI::Option* const option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::string letters = letters_of(name);
      std::size_t distance = edit_distance(typed, letters);
      if (letters.starts_with(typed)) distance = std::min<std::size_t>(distance, 1);
      if (distance >= least) continue;
      least = distance;
      nearest = "--" + name;
    }
  }
  return nearest;
}

// The innermost command that the parser has found.
NamedCommand found_command(const CLI::App& app) {
  NamedCommand found = {.command = &app, .name = app.get_name()};
  while (!found.command->get_subcommands().empty()) {
    found.command = found.command->get_subcommands().front();
    found.name += " " + found.command->get_name();
  }
  return found;
}

bool wants_command(const CLI::App& app, const CLI::ParseError& failure) {
  return dynamic_cast<const CLI::RequiredError*>(&failure) != nullptr &&
         found_command(app).command->get_require_subcommand_min() > 0;
}

}  // namespace

std::string describe_commands(const CLI::App& app, const CLI::ParseError& failure) {
  return wants_command(app, failure) ? app.help() + "\n" : "";
}

std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& failure) {
  const auto [command, name, words] = found_command(app);
  std::string problem = wants_command(app, failure) ? "expected a command" : failure.what();
  const std::vector<std::string> unexpected = command->remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&failure) != nullptr && !unexpected.empty()) {
    const std::string& word = unexpected.front();
    const std::string flag = nearest_flag(*command, word);
    problem = fmt::format("unexpected argument '{}'", word);
    if (!flag.empty()) problem += fmt::format("; did you mean {}?", flag);
  }
  return fmt::format("{} (see {} --help)", problem, name);
}

NamedCommand named_command(const CLI::App& app, int argc, const char* const* argv) {
  NamedCommand named = {.command = &app, .name = app.get_name()};
  for (; named.words < argc; ++named.words) {
    const std::string word = argv[named.words];
    const auto below = named.command->get_subcommands(
        [&](const CLI::App* candidate) { return candidate->check_name(word); });
    if (below.empty()) break;
    named.command = below.front();
    named.name += " " + word;
  }
  return named;
}

std::string describe_unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  const NamedCommand named = named_command(app, argc, argv);
  if (named.words == argc || named.command->get_require_subcommand_min() == 0) return "";
  const std::string word = argv[named.words];
  if (word.empty() || word.front() == '-') return "";
  const std::string nearest = nearest_command(*named.command, word);
  const std::string around = named.name.substr(app.get_name().size());  // " bench"
  return fmt::format("there is no command '{}{}{}'{} (see {} --help)",
                     around.empty() ? "" : around.substr(1), around.empty() ? "" : " ", word,
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest), named.name);
}

}  // namespace kakeya::cli
