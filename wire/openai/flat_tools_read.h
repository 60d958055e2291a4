// Tools as requests for responses list them, read as templates are shown them. Problems are the
// reader's.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wire/http/json_reader.h"
#include "wire/openai/tool_names.h"

namespace kakeya::openai {

// Tools of one request, wherever it lists them. One thread at a time; the reader must outlive it.
class FlatTools {
 public:
  struct Shown {
    std::string name;
    std::string text;  // {"type": "function", "function": {"name", ...}}
  };

  explicit FlatTools(wire::JsonReader& reader) : reader_(reader) {}

  // Adds the functions of an array whose own text is `text`, and those of its namespaces: {"type":
  // "function", "name", ...}, {"type": "custom", "name", ...} or {"type": "namespace", "name",
  // "tools": [...]}. Leaves out a web search that may not ask the web.
  void add(const wire::Json& tools, std::string_view text, const std::string& where);

  const std::vector<Shown>& shown() const { return shown_; }
  ClientTools take_names() { return std::move(names_); }

 private:
  // `space`: the namespace that they stand in, empty outside.
  void add_of(const std::string& space,
              const wire::Json& tools,
              std::string_view text,
              const std::string& where);
  void add_tool(const std::string& space,
                const wire::Json& tool,
                std::string_view text,
                const std::string& where);
  void add_space(const wire::Json& space, std::string_view text, const std::string& where);
  void add_function(const std::string& space,
                    const wire::Json& tool,
                    std::string_view text,
                    const std::string& where);
  // {"type": "custom", "name", "description", "format"}: a function of one text.
  void add_custom(const std::string& space, const wire::Json& tool, const std::string& where);
  // Keeps a tool whose name is not that of another one.
  void keep(const ClientTool& tool, const std::string& text, const std::string& where);

  wire::JsonReader& reader_;
  std::vector<Shown> shown_ = {};
  ClientTools names_ = {};
};

// True of an array of tools, not too many; refuses others.
bool check_tool_list(wire::JsonReader& reader, const wire::Json& tools, const std::string& where);

// Refuses a tool that is too large for a template to walk over.
void check_tool_size(wire::JsonReader& reader, std::string_view text, const std::string& where);

}  // namespace kakeya::openai
