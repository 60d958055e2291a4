// Tools that a reply of kakeya run may call, from a file.
#pragma once

#include <string>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::cli {

struct ToolsFile {
  std::vector<std::string> tools;  // as ChatOptions::tools
  std::vector<std::string> names;
};

// Reads a tool or an array of tools: {"type": "function", "function": {"name", ...}}, or the
// function alone. Errors: as read_text(), and kInvalidArgument for what is no tool, naming the file
// and the place.
Result<ToolsFile> read_tools(const std::string& file);

}  // namespace kakeya::cli
