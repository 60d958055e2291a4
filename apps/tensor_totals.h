// How many tensors of a file, and bytes, are stored in each way.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kakeya::cli {

struct TensorTotal {
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;
};

// By the name of the type, which must outlive it.
class TensorTotals {
 public:
  void add(std::string_view type, std::uint64_t bytes) {
    TensorTotal& total = totals_[type];
    ++total.tensors;
    total.bytes += bytes;
  }

  auto begin() const { return totals_.begin(); }
  auto end() const { return totals_.end(); }

  // {} if there is no tensor.
  nlohmann::ordered_json to_json() const {
    auto json = nlohmann::ordered_json::object();
    for (const auto& [type, total] : totals_) {
      json[std::string(type)] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
    }
    return json;
  }

 private:
  std::map<std::string_view, TensorTotal> totals_;
};

}  // namespace kakeya::cli
