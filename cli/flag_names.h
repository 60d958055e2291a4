// Names of options: the library's, and the command line's.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kakeya::cli {

struct FlagName {
  std::string_view option;  // as the library's errors name it
  std::string_view flag;
};

// All that errors may name and that has a flag.
std::span<const FlagName> flag_names();

// The message of an error of the library with flags in place of options.
std::string with_flags(std::string_view message);

}  // namespace kakeya::cli
