#include "wire/openai/input_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "service/json_text.h"
#include "wire/http/json_parts.h"
#include "wire/http/request_text.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;

struct Page {
  std::size_t limit = 20;
  bool descending = true;
  std::string after = {};
};

service::Refusal wrong(std::string_view name, std::string_view expected, std::string_view got) {
  return {.message = fmt::format("{}: expected {}, got {}", wire::quoted(name), expected,
                                 wire::quoted(got)),
          .parameter = std::string(name)};
}

service::Outcome<Page> page_of(std::string_view query) {
  constexpr std::size_t kMostItems = 100;
  Page page;
  for (const auto& [name, value] : wire::members_of(query)) {
    if (name == "limit") {
      const char* const end = value.data() + value.size();
      const auto [read, failure] = std::from_chars(value.data(), end, page.limit);
      if (failure != std::errc() || read != end || page.limit < 1 || page.limit > kMostItems) {
        return tl::unexpected(wrong(name, fmt::format("1 to {}", kMostItems), value));
      }
    } else if (name == "order") {
      if (value != "asc" && value != "desc") {
        return tl::unexpected(wrong(name, "asc or desc", value));
      }
      page.descending = value == "desc";
    } else if (name == "after") {
      page.after = value;
    } else if (!name.starts_with("include")) {
      return tl::unexpected(wrong(name, "limit, order, after or include", name));
    }
  }
  return page;
}

// Adds items under ids of their own.
class ItemList {
 public:
  explicit ItemList(std::string_view response) : response_(response) {
    if (const auto at = response_.find('_'); at != std::string_view::npos) {
      response_.remove_prefix(at + 1);
    }
  }

  void add(const ChatMessage& message) {
    if (message.role == "tool") {
      return add("fco", {{"type", "function_call_output"},
                         {"call_id", message.tool_call_id},
                         {"output", message.content},
                         {"status", "completed"}});
    }
    if (!message.reasoning.empty()) {
      add("rs", {{"type", "reasoning"},
                 {"summary", ordered_json::array()},
                 {"content", {{{"type", "reasoning_text"}, {"text", message.reasoning}}}}});
    }
    const bool is_answer = message.role == "assistant";
    if (!message.content.empty() || !is_answer) {
      ordered_json part = {{"type", is_answer ? "output_text" : "input_text"},
                           {"text", message.content}};
      if (is_answer) part["annotations"] = ordered_json::array();
      add("msg", {{"type", "message"},
                  {"role", message.role},
                  {"status", "completed"},
                  {"content", ordered_json::array({std::move(part)})}});
    }
    for (const ToolCall& call : message.tool_calls) {
      add("fc", {{"type", "function_call"},
                 {"call_id", call.id},
                 {"name", call.name},
                 {"arguments", call.arguments},
                 {"status", "completed"}});
    }
  }
  std::vector<ordered_json> take() { return std::move(items_); }

 private:
  void add(const char* prefix, const ordered_json& item) {
    ordered_json named = {{"id", fmt::format("{}_{}_{}", prefix, response_, items_.size())}};
    named.update(item);
    items_.push_back(std::move(named));
  }

  std::string_view response_;
  std::vector<ordered_json> items_;
};

}  // namespace

service::Outcome<std::string> input_items_json(std::string_view id,
                                               const StoredResponse& response,
                                               std::string_view query) {
  const auto page = page_of(query);
  if (!page) return tl::unexpected(page.error());
  ItemList list(id);
  // The last message is the response's own.
  for (std::size_t i = response.first_input; i + 1 < response.messages.size(); ++i) {
    list.add(response.messages[i]);
  }
  std::vector<ordered_json> items = list.take();
  if (page->descending) std::ranges::reverse(items);
  auto first = items.begin();
  if (!page->after.empty()) {
    first = std::ranges::find_if(
        items, [&](const ordered_json& item) { return item["id"] == page->after; });
    if (first == items.end()) return tl::unexpected(wrong("after", "an item's id", page->after));
    ++first;
  }
  const auto left = static_cast<std::size_t>(items.end() - first);
  const std::span shown(first, std::min(left, page->limit));
  ordered_json data = ordered_json::array();
  for (ordered_json& item : shown) data.push_back(std::move(item));
  const auto id_of = [&](const ordered_json& item) { return item["id"]; };
  const ordered_json none;
  return service::json_text({{"object", "list"},
                             {"data", data},
                             {"first_id", data.empty() ? none : id_of(data.front())},
                             {"last_id", data.empty() ? none : id_of(data.back())},
                             {"has_more", left > shown.size()}});
}

}  // namespace kakeya::openai
