// Routing and experts of the CPU executor. Rows are sorted by expert, each expert's rows are packed
// together and multiplied as one matrix; the items of all experts form one loop for the pool.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_executor.h"
#include "base/check.h"

namespace kakeya::cpu {
namespace {

constexpr Index kExpertItemBytes = Index{256} << 10;
constexpr Index kExpertRows = 128;  // rows of one call, as in products

// The top_k largest of the row, best first; ties: the lower id stays.
void choose(const float* logits, Index num_experts, Index top_k, std::int32_t* chosen) {
  for (Index r = 0; r < top_k; ++r) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < num_experts; ++e) {
      if (best >= 0 && !(logits[e] > logits[best])) continue;
      if (std::find(chosen, chosen + r, e) == chosen + r) best = e;
    }
    chosen[r] = best;
  }
}

}  // namespace

void CpuExecutor::route(ConstRows logits, const float* per_expert_scale, Routing routing) {
  const double cost = static_cast<double>(logits.width * routing.top_k);
  for_rows(logits.count, cost, [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      const float* row = logits.data + t * logits.width;
      std::int32_t* chosen = routing.experts + t * routing.top_k;
      float* weights = routing.weights + t * routing.top_k;
      choose(row, logits.width, routing.top_k, chosen);
      double total = 0.0;
      for (Index r = 0; r < routing.top_k; ++r) {
        total += std::exp(static_cast<double>(row[chosen[r]]) - row[chosen[0]]);
      }
      for (Index r = 0; r < routing.top_k; ++r) {
        const double p = std::exp(static_cast<double>(row[chosen[r]]) - row[chosen[0]]) / total;
        weights[r] = static_cast<float>(p * per_expert_scale[chosen[r]]);
      }
    }
  });
}

Index CpuExecutor::sort_by_expert(const Routing& routing, Index rows, Index num_experts) {
  auto* sorted = scratch_at<std::int32_t>(layout_.sorted_rows);
  auto* places = scratch_at<std::int32_t>(layout_.places);
  auto* first = scratch_at<std::int32_t>(layout_.first_places);
  auto* active = scratch_at<std::int32_t>(layout_.active_experts);
  const Index routed = rows * routing.top_k;
  std::fill_n(first, num_experts + 1, 0);
  for (Index i = 0; i < routed; ++i) ++first[routing.experts[i] + 1];
  Index count = 0;
  for (Index e = 0; e < num_experts; ++e) {
    if (first[e + 1] > 0) active[count++] = static_cast<std::int32_t>(e);
    first[e + 1] += first[e];
  }
  for (Index i = 0; i < routed; ++i) {
    const std::int32_t place = first[routing.experts[i]]++;
    places[i] = place;
    sorted[place] = static_cast<std::int32_t>(i / routing.top_k);
  }
  // Each entry has moved to the next expert's first place: move them back.
  for (Index e = num_experts; e > 0; --e) first[e] = first[e - 1];
  first[0] = 0;
  return count;
}

void CpuExecutor::pack_expert_rows(ConstRows x, Index active, Index top_k, Arithmetic arithmetic) {
  const auto* sorted = scratch_at<std::int32_t>(layout_.sorted_rows);
  const auto* first = scratch_at<std::int32_t>(layout_.first_places);
  const auto* experts = scratch_at<std::int32_t>(layout_.active_experts);
  const Index element = arithmetic == Arithmetic::kBf16Fast ? kernels_.fast_element_bytes : 4;
  const Index row_bytes = round_up(x.width, kColumnUnit) * element;
  PackRows rows = {.x = x.data, .stride = x.width, .width = x.width, .arithmetic = arithmetic};
  if (x.count == 1) {  // one packed row serves all of its experts
    rows.rows = 1;
    rows.packed = scratch_at<std::byte>(layout_.expert_rows);
    return kernels_.pack_rows(rows, 0, 1);
  }
  const double cost = static_cast<double>(x.count * top_k * x.width) / 2.0;
  for_items(active, cost, [&](Index item) {
    const std::int32_t expert = experts[item];
    PackRows own = rows;
    own.rows = first[expert + 1] - first[expert];
    own.gather = sorted + first[expert];
    own.packed = scratch_at<std::byte>(layout_.expert_rows) + first[expert] * row_bytes;
    kernels_.pack_rows(own, 0, own.rows);
  });
}

void CpuExecutor::run_expert_products(const Product& shared,
                                      const CpuMatrix& weights,
                                      const CpuMatrix* up,
                                      Index active,
                                      bool one_row) {
  const auto* first = scratch_at<std::int32_t>(layout_.first_places);
  const auto* experts = scratch_at<std::int32_t>(layout_.active_experts);
  const auto element = [&](Arithmetic arithmetic) {
    return arithmetic == Arithmetic::kBf16Fast ? kernels_.fast_element_bytes : Index{4};
  };
  const Index x_bytes = shared.columns * element(shared.arithmetic);
  const Index hidden_bytes =
      round_up(shared.outputs, kColumnUnit) * element(shared.packed_arithmetic);
  const Index tile =
      std::max<Index>(1, up != nullptr ? kernels_.panel_group / 2 : kernels_.panel_group);
  const Index tile_bytes = tile * shared.panel_bytes * (up != nullptr ? 2 : 1);
  const Index panels = weights.num_panels();
  const Index group = tile * std::max<Index>(1, kExpertItemBytes / tile_bytes);
  const Index groups = (panels + group - 1) / group;
  const Index rows_in_all = first[weights.num_matrices()];
  const double cost = product_nanoseconds(shared, panels * active, 1) +
                      product_nanoseconds(shared, panels, rows_in_all);
  for_items(active * groups, cost, [&](Index item) {
    const std::int32_t expert = experts[item / groups];
    const Index place = first[expert];
    Product product = shared;
    product.rows = first[expert + 1] - place;
    if (!one_row) product.x += place * x_bytes;
    product.panels = weights.panels(expert);
    if (up != nullptr) product.up_panels = up->panels(expert);
    if (product.packed_out != nullptr) product.packed_out += place * hidden_bytes;
    if (product.out != nullptr) product.out += place * product.out_stride;
    const Index first_panel = item % groups * group;
    for (Index row = 0; row < product.rows; row += kExpertRows) {
      kernels_.multiply(product, {.first_row = row,
                                  .last_row = std::min(row + kExpertRows, product.rows),
                                  .first_panel = first_panel,
                                  .last_panel = std::min(first_panel + group, panels)});
    }
  });
}

void CpuExecutor::experts(ConstRows x,
                          const ExpertWeights& weights,
                          const Routing& routing,
                          GateActivation activation,
                          Rows out) {
  if (x.count == 0) return;
  const auto& gate = static_cast<const CpuMatrix&>(*weights.gate);
  const auto& up = static_cast<const CpuMatrix&>(*weights.up);
  const auto& down = static_cast<const CpuMatrix&>(*weights.down);
  KAKEYA_CHECK(gate.arithmetic() == up.arithmetic());
  const Index active = sort_by_expert(routing, x.count, gate.num_matrices());
  count_bytes(static_cast<std::uint64_t>(active) * (gate.bytes() + up.bytes() + down.bytes()));
  const bool one_row = x.count == 1;
  pack_expert_rows(x, active, routing.top_k, gate.arithmetic());

  Product hidden;
  hidden.x = scratch_at<std::byte>(layout_.expert_rows);
  hidden.columns = gate.padded_columns();
  hidden.panels = gate.panels(0);
  hidden.up_panels = up.panels(0);
  hidden.panel_bytes = gate.panel_bytes();
  hidden.outputs = gate.rows();
  hidden.arithmetic = gate.arithmetic();
  hidden.activation =
      activation == GateActivation::kSilu ? Activation::kSilu : Activation::kGeluTanh;
  hidden.packed_out = scratch_at<std::byte>(layout_.expert_hidden);
  hidden.packed_arithmetic = down.arithmetic();
  run_expert_products(hidden, gate, &up, active, one_row);

  Product outputs;
  outputs.x = hidden.packed_out;
  outputs.columns = down.padded_columns();
  outputs.panels = down.panels(0);
  outputs.panel_bytes = down.panel_bytes();
  outputs.outputs = down.rows();
  outputs.arithmetic = down.arithmetic();
  outputs.out = scratch_at<float>(layout_.expert_rows);
  outputs.out_stride = down.rows();
  run_expert_products(outputs, down, nullptr, active, false);

  const auto* places = scratch_at<std::int32_t>(layout_.places);
  const double cost = static_cast<double>(routing.top_k * out.width) / 4.0;
  for_rows(x.count, cost, [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      kernels_.weighted_sum(outputs.out, outputs.out_stride, places + t * routing.top_k,
                            routing.weights + t * routing.top_k, routing.top_k, out.width,
                            out.data + t * out.width);
    }
  });
}

}  // namespace kakeya::cpu
