// Calls of tools in answers: what came of them, and how a model writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"

namespace kakeya::service {

// Some more of a call. The first piece of a call has its id and its name, later ones have not.
struct ToolCallPiece {
  std::size_t index = 0;  // counts the answer's calls
  std::string id = {};
  std::string name = {};
  std::string arguments = {};  // more text of a JSON object
  std::size_t at = 0;          // bytes of the text of the piece of an answer before it
};

// Appends a piece; one that goes on with the last call becomes a part of that.
void add_call(std::vector<ToolCallPiece>& calls, ToolCallPiece more);

// How a model writes calls:
//   kGemma     <|tool_call>call:NAME{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>
//   kQwenJson  <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>
//   kQwenXml   <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n
//              </tool_call>
// kNone: in none of these ways, or not at all.
enum class ToolFormat : std::uint8_t { kNone, kGemma, kQwenJson, kQwenXml };

// True of a byte that names of tools may have in this format.
bool may_be_in_name(ToolFormat format, char byte);
// True of a name that the format can write so that it is read back.
bool can_carry_name(ToolFormat format, std::string_view name);

// Finds the format by what the model's chat template makes of a call. kGemma takes its markers as
// special tokens. kNone for a template that fails, or that writes no calls.
ToolFormat find_tool_format(const Engine& engine);

}  // namespace kakeya::service
