// str, repr and json.dumps of values.
#include <algorithm>

#include "base/status.h"
#include "text/jinja/objects.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/value.h"

namespace kakeya::jinja {
namespace {

void append_repr(const Value& value, std::string& out);

void append_repr_list(const List& list, std::string& out) {
  out += list.is_tuple ? '(' : '[';
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(list.items[i], out);
  }
  if (list.is_tuple && list.items.size() == 1) out += ',';
  out += list.is_tuple ? ')' : ']';
}

void append_repr_dict(const Dict& dict, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(key, out);
    out += ": ";
    append_repr(value, out);
  }
  out += '}';
}

void append_repr(const Value& value, std::string& out) {
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += value.truthy() ? "True" : "False";
  } else if (const auto integer = value.integer()) {
    out += fmt::format("{}", *integer);
  } else if (const auto large = value.large_integer()) {
    out += fmt::format("{}", *large);
  } else if (const auto number = value.floating()) {
    out += format_float(*number);
  } else if (const auto* text = value.string_pointer()) {
    append_quoted(*text, out);
  } else if (const List* list = value.list()) {
    append_repr_list(*list, out);
  } else if (const Dict* dict = value.dict()) {
    append_repr_dict(*dict, out);
  } else if (const Callable* callable = value.callable()) {
    out += fmt::format("<function {}>", callable->name);
  } else {
    out += fmt::format("<{}>", value.type_name());
  }
}

// Writes json.dumps of one value tree.
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  Status write(const Value& value, std::size_t level) {
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.truthy() ? "true" : "false";
    } else if (const auto integer = value.integer()) {
      out_ += fmt::format("{}", *integer);
    } else if (const auto large = value.large_integer()) {
      out_ += fmt::format("{}", *large);
    } else if (const auto number = value.floating()) {
      out_ += format_json_float(*number);
    } else if (const auto* text = value.string_pointer()) {
      append_json_string(*text, style_.ensure_ascii, out_);
    } else if (const List* list = value.list()) {
      return write_list(*list, level);
    } else if (const Dict* dict = value.dict()) {
      return write_dict(*dict, level);
    } else {
      return invalid_argument("an object of type {} has no JSON form", value.type_name());
    }
    return {};
  }

  std::string take() { return std::move(out_); }

 private:
  void new_line(std::size_t level) {
    if (!style_.indent) return;
    out_ += '\n';
    out_.append(level * static_cast<std::size_t>(std::max<std::int64_t>(*style_.indent, 0)), ' ');
  }

  void separate(bool first, std::size_t level) {
    if (!first) out_ += style_.item_separator;
    new_line(level);
  }

  Status write_list(const List& list, std::size_t level) {
    out_ += '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      separate(i == 0, level + 1);
      KAKEYA_TRY(write(list.items[i], level + 1));
    }
    if (!list.items.empty()) new_line(level);
    out_ += ']';
    return {};
  }

  Status write_dict(const Dict& dict, std::size_t level) {
    auto entries = dict.entries();
    if (style_.sort_keys) {
      std::ranges::stable_sort(entries, [](const auto& left, const auto& right) {
        return to_text(left.first) < to_text(right.first);
      });
    }
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      separate(i == 0, level + 1);
      KAKEYA_TRY(write_key(entries[i].first));
      out_ += style_.key_separator;
      KAKEYA_TRY(write(entries[i].second, level + 1));
    }
    if (!entries.empty()) new_line(level);
    out_ += '}';
    return {};
  }

  Status write_key(const Value& key) {
    if (key.is_string()) return write(key, 0);
    out_ += '"';
    KAKEYA_TRY(write(key, 0));
    out_ += '"';
    return {};
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_text(const Value& value) {
  if (const auto* text = value.string_pointer()) return *text;
  if (value.is_undefined()) return "";
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  std::string out;
  append_repr(value, out);
  return out;
}

Result<std::string> to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  KAKEYA_TRY(writer.write(value, 0));
  return writer.take();
}

}  // namespace kakeya::jinja
