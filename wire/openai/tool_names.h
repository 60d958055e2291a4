// Names of tools: as clients of the Responses API say them, and as the model is shown them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace kakeya::openai {

// A tool as its client names it: two namespaces may have tools of one name.
struct ClientTool {
  std::string space = {};  // its namespace; empty: it has none
  std::string name = {};
  bool is_custom = false;  // it takes a text, not JSON

  bool operator==(const ClientTool&) const = default;
};

// Tools of a request, by the names that the model is shown.
using ClientTools = std::map<std::string, ClientTool, std::less<>>;

// The one argument of the function that the model is shown for a tool that takes a text.
inline constexpr const char* kCustomArgument = "input";

// The name that the model is shown for a tool: "SPACE__NAME", or "NAME" without a namespace.
std::string shown_name(std::string_view space, std::string_view name);

}  // namespace kakeya::openai
