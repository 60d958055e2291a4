// Flags of llama.cpp, vLLM and Ollama, for people who come from there.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>

namespace kakeya::cli {

struct ForeignFlag {
  std::string_view name;        // as it is typed there
  std::string_view flag;        // what does it here; empty: nothing has to
  std::string_view words = {};  // more to say about it, or why nothing has to
};

std::span<const ForeignFlag> foreign_flags();

// Names the first flag of a command line that is another program's and not the command's own, with
// what is typed here instead: "--max-model-len is --ctx here". Empty: there is none. A parser would
// read -ngl as -n gl.
std::string describe_foreign_flag(const CLI::App& app, int argc, const char* const* argv);

}  // namespace kakeya::cli
