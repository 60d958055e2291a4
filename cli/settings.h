// Values of a command's flags from elsewhere than the command line: environment and files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace kakeya::cli {

// A value of a flag in a file.
struct Setting {
  std::string name;  // of the flag: "tls-cert"
  std::vector<std::string> values;
  std::string place;  // for messages: "FILE:LINE"
};

// A table of a file: [NAME] and what follows.
struct SettingsTable {
  std::string name;
  std::vector<Setting> settings;
  std::string place;
};

// The tables of a file in TOML, in its order. Throws CLI::ParseError with one line, which says
// where.
std::vector<SettingsTable> read_tables(const std::string& file);

// Gives each flag of `command` that the command line leaves open the value of the environment's
// PREFIX_FLAG (--tls-cert: PREFIX_TLS_CERT), else of `file`, in TOML (tls-cert = "cert.pem");
// empty: no file. Flags of the group kNotSettings are for the command line alone. Throws
// CLI::ParseError with one line, which says where the value comes from: main() prints it.
void take_settings(CLI::App& command, const std::string& prefix, const std::string& file);

// The value that `file` has for a flag now, for who reads it anew; none if it has none. Throws as
// take_settings().
std::optional<Setting> read_setting(const std::string& file, std::string_view name);

// True if neither the command line nor the environment has given this flag a value: the file's
// counts.
bool is_left_open(const CLI::App& command, const std::string& prefix, const std::string& name);

// Gives flags of `command` the values of a table. Throws as take_settings().
void take_table(CLI::App& command, const SettingsTable& table);

// Group of flags in --help.
inline constexpr const char* kNotSettings = "On the command line alone";

}  // namespace kakeya::cli
