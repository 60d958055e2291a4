#include "cli/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <utility>
#include <vector>

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

std::vector<CLI::ConfigItem> read_file(const std::string& file) {
  if (file.empty()) return {};
  const auto text = read_text(file);
  if (!text) throw CLI::FileError("--config: " + text.error().message());
  try {
    std::istringstream stream(*text);
    return CLI::ConfigTOML().from_config(stream);
  } catch (const std::exception& failure) {
    throw CLI::ConfigError(fmt::format("{}: {}", file, failure.what()),
                           CLI::ExitCodes::ConfigError);
  }
}

void take_item(CLI::App& command,
               const CLI::ConfigItem& item,
               const std::vector<const CLI::Option*>& decided,
               const std::string& file) {
  CLI::Option* const option = command.get_option_no_throw("--" + item.name);
  if (!item.parents.empty() || option == nullptr || !is_setting(*option)) {
    throw CLI::ConfigError(fmt::format("{}: there is no setting '{}'", file, item.fullname()),
                           CLI::ExitCodes::ConfigError);
  }
  if (std::ranges::find(decided, option) != decided.end()) return;
  give(*option, item.inputs, file);
}

}  // namespace

void take_settings(CLI::App& command, const std::string& prefix, const std::string& file) {
  for (CLI::Option* const option : command.get_options()) {
    if (!is_setting(*option) || option->count() > 0) continue;
    const std::string name = environment_name(prefix, *option);
    const char* const value = std::getenv(name.c_str());
    if (value != nullptr && *value != '\0') give(*option, {value}, name);
  }
  std::vector<const CLI::Option*> decided;
  for (const CLI::Option* const option : command.get_options()) {
    if (option->count() > 0) decided.push_back(option);
  }
  for (const CLI::ConfigItem& item : read_file(file)) take_item(command, item, decided, file);
  // The parser has asked before there were these values.
  for (const CLI::Option* const option : command.get_options()) {
    for (const CLI::Option* const other : option->get_excludes()) {
      if (option->count() > 0 && other->count() > 0) {
        throw CLI::ExcludesError(option->get_name(), other->get_name());
      }
    }
  }
}

}  // namespace kakeya::cli
