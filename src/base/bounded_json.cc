#include "base/bounded_json.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/json_size.h"
#include "base/status.h"

namespace kakeya {
namespace {

using nlohmann::ordered_json;
using Object = ordered_json::object_t;

// Keeps of members with one name the last value, in the first one's place.
void drop_repeated(Object& object) {
  const auto members = object.begin();
  std::vector<std::size_t> order(object.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&members](std::size_t one, std::size_t other) {
    return members[static_cast<std::ptrdiff_t>(one)].first <
           members[static_cast<std::ptrdiff_t>(other)].first;
  });
  std::vector<bool> dropped(object.size(), false);
  bool drops = false;
  for (std::size_t first = 0; first < order.size();) {
    std::size_t next = first + 1;
    while (next < order.size() && members[static_cast<std::ptrdiff_t>(order[next])].first ==
                                      members[static_cast<std::ptrdiff_t>(order[first])].first) {
      dropped[order[next++]] = drops = true;
    }
    if (next - first > 1) {
      members[static_cast<std::ptrdiff_t>(order[first])].second =
          std::move(members[static_cast<std::ptrdiff_t>(order[next - 1])].second);
    }
    first = next;
  }
  if (!drops) return;
  Object kept;
  for (std::size_t i = 0; i < object.size(); ++i) {
    if (!dropped[i])
      kept.emplace_back(members[static_cast<std::ptrdiff_t>(i)].first,
                        std::move(members[static_cast<std::ptrdiff_t>(i)].second));
  }
  object = std::move(kept);
}

// Puts the values together that the parser of nlohmann::json reads.
class Builder final : public nlohmann::json_sax<ordered_json> {
 public:
  explicit Builder(bool as_written) : as_written_(as_written) {}

  ordered_json take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!as_written_) return add(value);
    return add(ordered_json::binary({text.begin(), text.end()}));
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // no JSON has it
  bool start_object(std::size_t /*size*/) override { return open(ordered_json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(ordered_json::array()); }
  bool key(string_t& name) override {
    name_ = std::move(name);
    return true;
  }
  bool end_object() override {
    drop_repeated(open_.back()->get_ref<Object&>());
    return end_array();
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position,
                   const std::string& /*token*/,
                   const nlohmann::detail::exception& failure) override {
    constexpr int kNumberOutOfRange = 406;
    problem_ = failure.id == kNumberOutOfRange ? "a number beyond all bounds"
                                               : fmt::format("an error at byte {}", position);
    return false;
  }

 private:
  // Puts a value where the text has it, and tells where it is now.
  ordered_json& place(ordered_json value) {
    if (open_.empty()) return root_ = std::move(value);
    ordered_json& in = *open_.back();
    if (in.is_array()) {
      in.push_back(std::move(value));
      return in.back();
    }
    Object& object = in.get_ref<Object&>();
    object.emplace_back(std::move(name_), std::move(value));
    return object.back().second;
  }
  bool add(ordered_json value) {
    place(std::move(value));
    return true;
  }
  // An open value does not move: nothing is added around it before it has ended.
  bool open(ordered_json value) {
    open_.push_back(&place(std::move(value)));
    return true;
  }

  const bool as_written_;
  ordered_json root_;
  std::vector<ordered_json*> open_;
  std::string name_;
  std::string problem_;
};

}  // namespace

Status check_json_size(std::string_view text, const JsonLimits& limits) {
  const JsonSize size = json_size(text);
  if (size.depth > limits.depth) {
    return invalid_argument("expected at most {} levels of JSON, got more", limits.depth);
  }
  if (size.values > limits.values) {
    return invalid_argument("expected at most {} JSON values, got more", limits.values);
  }
  return {};
}

Result<ordered_json> read_json(std::string_view text, const JsonLimits& limits) {
  KAKEYA_TRY(check_json_size(text, limits));
  Builder builder(limits.as_written);
  if (!ordered_json::sax_parse(text, &builder)) {
    return invalid_argument("expected JSON, got {}", builder.problem());
  }
  return builder.take();
}

bool is_json(std::string_view text, const JsonLimits& limits) {
  return check_json_size(text, limits) && ordered_json::accept(text.begin(), text.end());
}

void append_member(ordered_json& object, std::string_view name, ordered_json value) {
  object.get_ref<Object&>().emplace_back(std::string(name), std::move(value));
}

}  // namespace kakeya
