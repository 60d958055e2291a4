#include "bindings/messages.h"

#include <nanobind/stl/string.h>

#include "bindings/keywords.h"

namespace kakeya::python {
namespace {

// Calls as OpenAI has them; arguments may be a dict.
std::vector<ToolCall> tool_calls_of(const std::string& name, nb::handle value) {
  if (PySequence_Check(value.ptr()) == 0 || PyUnicode_Check(value.ptr()) != 0)
    refuse_type(name, "a sequence of calls", value);
  std::vector<ToolCall> calls;
  for (const nb::handle each : nb::borrow<nb::sequence>(value)) {
    const std::string place = name + "[" + std::to_string(calls.size()) + "]";
    if (PyDict_Check(each.ptr()) == 0) refuse_type(place, "a dict", each);
    const auto fields = nb::borrow<nb::dict>(each);
    ToolCall& call = calls.emplace_back();
    Keywords keywords(fields, place + ".");
    std::string type = "function";
    keywords.read("id", call.id);
    keywords.read("type", type, {{"function", type}});
    keywords.with("function", [&](nb::handle function) {
      if (PyDict_Check(function.ptr()) == 0) refuse_type(place + ".function", "a dict", function);
      const auto parts = nb::borrow<nb::dict>(function);
      Keywords of_function(parts, place + ".function.");
      of_function.read("name", call.name);
      of_function.with("arguments", [&](nb::handle arguments) {
        const std::string where = of_function.place("arguments");
        call.arguments = PyDict_Check(arguments.ptr()) != 0 ? json_of(where, nb::borrow(arguments))
                                                            : text_of(where, arguments);
      });
      of_function.refuse_unknown();
    });
    keywords.refuse_unknown();
    if (call.name.empty()) {
      throw nb::type_error((place + ": expected a function with a name, got none").c_str());
    }
  }
  return calls;
}

// The fields that say something: clients give an answer back as it came, with None or an empty list
// for what it had none of.
nb::dict said_fields(const nb::dict& given) {
  nb::dict said;
  for (const auto& [name, value] : given) {
    const bool is_empty = PyList_Check(value.ptr()) != 0 && PyList_Size(value.ptr()) == 0;
    if (!value.is_none() && !is_empty) said[name] = value;
  }
  return said;
}

// A text, or parts of {"type": "text"} that are put together.
std::string content_of(const std::string& name, nb::handle value) {
  if (PyList_Check(value.ptr()) == 0) return text_of(name, value);
  std::string content;
  for (const nb::handle part : nb::borrow<nb::list>(value)) {
    if (PyDict_Check(part.ptr()) == 0) refuse_type(name, "text parts", part);
    const auto fields = nb::borrow<nb::dict>(part);
    Keywords keywords(fields, name + ": ");
    std::string type;
    std::string text;
    keywords.read("type", type, {{"text", std::string("text")}});
    keywords.read("text", text);
    keywords.refuse_unknown();
    content += text;
  }
  return content;
}

// `fields` as said_fields() gives them.
ChatMessage chat_message(const std::string& place, const nb::dict& fields) {
  Keywords keywords(fields, place + ": ");
  ChatMessage message;
  keywords.read("role", message.role);
  if (message.role.empty()) {
    throw nb::type_error((place + ": expected role and content, got no role").c_str());
  }
  // A developer's message is what newer clients call the system's.
  if (message.role == "developer") message.role = "system";
  const bool may_lack_content = message.role == "assistant" || message.role == "tool";
  if (!fields.contains("content") && !may_lack_content) {
    throw nb::type_error((place + ": expected role and content, got no content").c_str());
  }
  keywords.with("content", [&](nb::handle value) {
    message.content = content_of(keywords.place("content"), value);
  });
  keywords.with("tool_calls", [&](nb::handle value) {
    message.tool_calls = tool_calls_of(keywords.place("tool_calls"), value);
  });
  keywords.read("name", message.name);
  keywords.read("tool_call_id", message.tool_call_id);
  keywords.read("reasoning", message.reasoning);
  keywords.refuse_unknown();
  return message;
}

}  // namespace

std::vector<ChatMessage> chat_messages(const nb::sequence& given) {
  std::vector<ChatMessage> messages;
  for (const nb::handle each : given) {
    const std::string place = "message " + std::to_string(messages.size());
    if (PyDict_Check(each.ptr()) == 0) refuse_type(place, "a dict", each);
    messages.push_back(chat_message(place, said_fields(nb::borrow<nb::dict>(each))));
  }
  if (messages.empty()) throw nb::value_error("messages: expected at least one, got none");
  return messages;
}

nb::dict message_dict(const ChatMessage& message) {
  nb::dict fields;
  fields["role"] = message.role;
  fields["content"] = nb::none();
  if (!message.content.empty() || message.tool_calls.empty()) fields["content"] = message.content;
  if (!message.reasoning.empty()) fields["reasoning"] = message.reasoning;
  if (message.tool_calls.empty()) return fields;
  nb::list calls;
  for (const ToolCall& call : message.tool_calls) {
    nb::dict function;
    function["name"] = call.name;
    function["arguments"] = call.arguments;
    nb::dict whole;
    whole["id"] = call.id;
    whole["type"] = "function";
    whole["function"] = function;
    calls.append(whole);
  }
  fields["tool_calls"] = calls;
  return fields;
}

std::vector<std::string> tool_texts(const nb::sequence& given) {
  std::vector<std::string> tools;
  for (const nb::handle each : given) {
    const std::string place = "tools[" + std::to_string(tools.size()) + "]";
    if (PyDict_Check(each.ptr()) == 0) refuse_type(place, "a dict", each);
    tools.push_back(json_of(place, nb::borrow(each)));
  }
  return tools;
}

}  // namespace kakeya::python
