// Values of a command's flags from elsewhere than the command line: environment and a file.
#pragma once

#include <string>

#include "cli/command.h"

namespace kakeya::cli {

// Gives each flag of `command` that the command line leaves open the value of the environment's
// PREFIX_FLAG (--tls-cert: PREFIX_TLS_CERT), else of `file`, in TOML (tls-cert = "cert.pem");
// empty: no file. Flags of the group kNotSettings are for the command line alone. Throws
// CLI::ParseError with one line, which says where the value comes from: main() prints it.
void take_settings(CLI::App& command, const std::string& prefix, const std::string& file);

// Group of flags in --help.
inline constexpr const char* kNotSettings = "On the command line alone";

}  // namespace kakeya::cli
