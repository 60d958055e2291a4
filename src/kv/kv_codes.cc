#include "kv/kv_codes.h"

#include <span>

#include "kakeya/status_macros.h"

namespace kakeya {
namespace {

std::span<const float> of_head(const std::vector<float>& numbers,
                               std::int64_t head,
                               std::int64_t head_dim) {
  return std::span(numbers).subspan(static_cast<std::size_t>(head * head_dim),
                                    static_cast<std::size_t>(head_dim));
}

// The cost of a squared error of each element of one vector: that of the key, and of the value. An
// error of a score moves the output by about a value, whose squares add up to E; an error of a
// value moves it by itself.
std::vector<float> cost_of_both(std::span<const float> key_cost) {
  std::vector<float> cost(key_cost.begin(), key_cost.end());
  for (float& element : cost) element += 1.0F / static_cast<float>(cost.size());
  return cost;
}

}  // namespace

std::uint64_t KvCodes::bytes(const KvStatistics& statistics) {
  std::uint64_t bytes = 0;
  for (const KvLayerStatistics& layer : statistics.layers) {
    if (layer.is_sliding) continue;
    const std::uint64_t vectors = layer.value_mean.empty() ? 1 : 2;
    bytes += vectors * static_cast<std::uint64_t>(layer.num_kv_heads) *
             CalibratedCode::table_bytes(layer.head_dim);
  }
  return bytes;
}

Result<std::shared_ptr<const KvCodes>> KvCodes::create(const KvStatistics& statistics,
                                                       KvBits bits,
                                                       MemoryBudget& budget) {
  auto codes = std::make_shared<KvCodes>();
  KAKEYA_ASSIGN_OR_RETURN(codes->tables_,
                          budget.allocate(MemoryClass::kCodes, KvCodes::bytes(statistics)));
  std::byte* next = codes->tables_.data();
  const auto take = [&](std::int64_t head_dim) {
    std::byte* const tables = next;
    next += CalibratedCode::table_bytes(head_dim);
    return tables;
  };
  for (const KvLayerStatistics& layer : statistics.layers) {
    Layer& made = codes->layers_.emplace_back();
    if (layer.is_sliding) continue;
    const bool one_vector = layer.value_mean.empty();
    for (std::int64_t head = 0; head < layer.num_kv_heads; ++head) {
      const auto of = [&](const std::vector<float>& numbers) {
        return of_head(numbers, head, layer.head_dim);
      };
      const auto code_keys = [&](std::span<const float> cost) {
        made.keys.push_back(CalibratedCode::of_keys(of(layer.key_mean), of(layer.key_variance),
                                                    cost, bits.keys, take(layer.head_dim)));
      };
      if (one_vector) {
        code_keys(cost_of_both(of(layer.key_cost)));
        continue;
      }
      code_keys(of(layer.key_cost));
      made.values.push_back(
          CalibratedCode::of_values(of(layer.value_mean), bits.values, take(layer.head_dim)));
    }
    for (const CalibratedCode& code : made.keys) made.key_views.push_back(code.view());
    for (const CalibratedCode& code : made.values) made.value_views.push_back(code.view());
  }
  return codes;
}

}  // namespace kakeya
