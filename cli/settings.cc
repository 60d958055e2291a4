#include "cli/settings.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

namespace kakeya::cli {
namespace {

bool is_setting(const CLI::Option& option) {
  const std::string& name = option.get_single_name();
  return !option.get_lnames().empty() && name != "help" && option.get_group() != kNotSettings;
}

std::string environment_name(const std::string& prefix, const CLI::Option& option) {
  std::string name = prefix + "_" + option.get_lnames().front();
  for (char& c : name) {
    if (c == '-') c = '_';
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return name;
}

std::optional<std::string> value_of_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return {};
  return value;
}

void give(CLI::Option& option, std::vector<std::string> values, const std::string& where) {
  try {
    // A flag without a value: true or false.
    if (option.get_expected_min() == 0 && values.size() == 1) {
      values.front() = option.get_flag_value(option.get_lnames().front(), values.front());
    }
    option.add_result(std::move(values));
    option.run_callback();
  } catch (const CLI::ParseError& failure) {
    throw CLI::ValidationError(where, failure.what());
  }
}

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw CLI::ConfigError(fmt::format("{}: {}", place, why), CLI::ExitCodes::ConfigError);
}

std::string place_of(const std::string& file, const toml::source_region& region) {
  return fmt::format("{}:{}", file, region.begin.line);
}

// The text of a value as a flag has it on the command line.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return fmt::format("{}", *number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  return {};
}

std::vector<std::string> values_of(const toml::node& node, const std::string& place) {
  std::vector<std::string> values;
  const auto add = [&](const toml::node& value) {
    const auto text = text_of(value);
    if (!text) refuse(place, "expected a text, a number, true, false, or a list of these");
    values.push_back(*text);
  };
  if (!node.is_array()) {
    add(node);
  } else {
    for (const toml::node& value : *node.as_array()) add(value);
  }
  return values;
}

toml::table parse_file(const std::string& file) {
  const auto text = read_text(file);
  if (!text) throw CLI::FileError(text.error().message());
  try {
    return toml::parse(*text);
  } catch (const toml::parse_error& failure) {
    refuse(place_of(file, failure.source()), std::string(failure.description()));
  }
}

// The entries of a table in the order of the file.
std::vector<std::pair<std::string, const toml::node*>> entries_of(const toml::table& table) {
  std::vector<std::pair<std::string, const toml::node*>> entries;
  for (const auto& [key, value] : table) entries.emplace_back(key.str(), &value);
  std::ranges::stable_sort(entries, {}, [](const auto& entry) {
    const toml::source_position& begin = entry.second->source().begin;
    return std::pair(begin.line, begin.column);
  });
  return entries;
}

std::vector<Setting> settings_of(const toml::table& table, const std::string& file) {
  std::vector<Setting> settings;
  for (const auto& [name, node] : entries_of(table)) {
    const std::string place = place_of(file, node->source());
    if (node->is_table()) refuse(place, fmt::format("there is no table '{}' of settings", name));
    settings.push_back({.name = name, .values = values_of(*node, place), .place = place});
  }
  return settings;
}

void take_setting(CLI::App& command,
                  const Setting& setting,
                  const std::vector<const CLI::Option*>& decided) {
  CLI::Option* const option = command.get_option_no_throw("--" + setting.name);
  if (option == nullptr || !is_setting(*option)) {
    refuse(setting.place, fmt::format("there is no setting '{}'", setting.name));
  }
  if (std::ranges::find(decided, option) != decided.end()) return;
  give(*option, setting.values, setting.place);
}

// The parser has asked before there were these values.
void check_excludes(const CLI::App& command) {
  for (const CLI::Option* const option : command.get_options()) {
    for (const CLI::Option* const other : option->get_excludes()) {
      if (option->count() > 0 && other->count() > 0) {
        throw CLI::ExcludesError(option->get_name(), other->get_name());
      }
    }
  }
}

}  // namespace

std::vector<SettingsTable> read_tables(const std::string& file) {
  const toml::table root = parse_file(file);
  std::vector<SettingsTable> tables;
  for (const auto& [name, node] : entries_of(root)) {
    const std::string place = place_of(file, node->source());
    const toml::table* const table = node->as_table();
    if (table == nullptr)
      refuse(place, fmt::format("expected a table, as [{}], got a value", name));
    tables.push_back({.name = name, .settings = settings_of(*table, file), .place = place});
  }
  return tables;
}

std::optional<Setting> read_setting(const std::string& file, std::string_view name) {
  for (Setting& setting : settings_of(parse_file(file), file)) {
    if (setting.name == name) return std::move(setting);
  }
  return {};
}

bool is_left_open(const CLI::App& command, const std::string& prefix, const std::string& name) {
  const CLI::Option& option = *command.get_option("--" + name);
  return option.count() == 0 && !value_of_environment(environment_name(prefix, option));
}

void take_settings(CLI::App& command, const std::string& prefix, const std::string& file) {
  for (CLI::Option* const option : command.get_options()) {
    if (!is_setting(*option) || option->count() > 0) continue;
    const std::string name = environment_name(prefix, *option);
    if (const auto value = value_of_environment(name)) give(*option, {*value}, name);
  }
  std::vector<const CLI::Option*> decided;
  for (const CLI::Option* const option : command.get_options()) {
    if (option->count() > 0) decided.push_back(option);
  }
  if (!file.empty()) {
    for (const Setting& setting : settings_of(parse_file(file), file)) {
      take_setting(command, setting, decided);
    }
  }
  check_excludes(command);
}

void take_table(CLI::App& command, const SettingsTable& table) {
  for (const Setting& setting : table.settings) take_setting(command, setting, {});
  check_excludes(command);
}

}  // namespace kakeya::cli
