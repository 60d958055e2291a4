#include "eval/report/describe.h"

namespace kakeya::eval {

bool JsonReader::is_there(const char* name) {
  if (problem_) return false;
  const bool found = from_.contains(name);
  if (!found) problem_ = {below(name), "expected it to be there, got nothing"};
  return found;
}

void JsonReader::refuse(const std::string& at, const char* expected, const Report& got) {
  const std::string text = got.dump(-1, ' ', false, Report::error_handler_t::replace);
  problem_ = {at, std::string("expected ") + expected + ", got " + text.substr(0, 80)};
}

std::vector<std::string> FieldLister::below(std::initializer_list<std::string> names) const {
  std::vector<std::string> way = at_;
  way.insert(way.end(), names);
  if (may_be_missing_ && !way[at_.size()].ends_with('?')) way[at_.size()] += "?";
  return way;
}

void FieldLister::add(std::string name, bool is_list, FieldRole role, FieldType type) {
  std::vector<std::string> names = below({std::move(name)});
  if (is_list) names.emplace_back("*");
  to_.push_back({.names = std::move(names), .type = type, .role = role});
}

}  // namespace kakeya::eval
