#include <nlohmann/json.hpp>
#include <utility>

#include "base/bounded_json.h"
#include "service/json_text.h"
#include "service/qwen_calls.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

// Arguments, in their call.
constexpr JsonLimits kLimits = {.depth = ToolParser::kMostNesting + 1};

// The name of a call, empty if the object has none.
std::string name_of_call(const ordered_json& object) {
  if (!object.is_object() || !object.contains("name") || !object["name"].is_string()) return "";
  return object["name"].get<std::string>();
}

}  // namespace

void QwenJsonCalls::begin_body() {
  checker_ = {};
  object_.clear();
  is_decided_ = false;
  are_arguments_ = false;
  is_begun_ = false;
}

void QwenJsonCalls::read_body(char byte) {
  if (checker_.depth() == 0 && is_json_blank(byte)) return hold(byte);
  if (!checker_.push(byte, kMostNesting + 1)) return refuse_body(byte);
  if (are_arguments_) {
    add_arguments({&byte, 1});
    if (checker_.depth() > 1) return;
    are_arguments_ = false;
    return end_call();
  }
  hold(byte);
  if (!is_begun_) object_ += byte;
  if (checker_.depth() == 2 && !std::exchange(is_decided_, true) && byte == '{' &&
      begin_arguments()) {
    return;
  }
  if (checker_.is_whole()) read_whole();
}

bool QwenJsonCalls::begin_arguments() {
  const ordered_json begun = read_json(object_ + "}}", kLimits).value_or(ordered_json());
  const std::string name = name_of_call(begun);
  if (name.empty() || begun.size() != 2 || !begun.contains("arguments")) return false;
  begin_call(name);
  add_arguments("{");
  are_arguments_ = true;
  is_begun_ = true;
  return true;
}

void QwenJsonCalls::read_whole() {
  if (is_begun_) {
    held_.clear();
    return end_body();
  }
  const ordered_json object = read_json(object_, kLimits).value_or(ordered_json());
  const std::string name = name_of_call(object);
  const auto found = name.empty() ? object.end() : object.find("arguments");
  const bool has_none = found == object.end() || found->is_null();
  if (name.empty() || (!has_none && !found->is_object())) return give_up();
  begin_call(name);
  add_arguments(has_none ? "{}" : json_text(*found));
  end_call();
  end_body();
}

}  // namespace kakeya::service
