// Routing and experts of the CPU executor. Rows are sorted by expert, each expert's rows are packed
// together and multiplied as one matrix; the items of all experts form one loop for the pool.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_executor.h"

namespace kakeya::cpu {
namespace {

constexpr Index kExpertItemBytes = Index{256} << 10;
constexpr Index kExpertRows = 128;  // rows of one call, as in products

// The top_k largest of the row, best first; ties: the lower id stays.
void choose_experts(const float* logits, Index num_experts, Index top_k, std::int32_t* chosen) {
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

void CpuExecutor::route(ConstRows logits,
                        DevicePointer<const float> per_expert_scale,
                        Routing routing) {
  const double cost = static_cast<double>(logits.width * routing.top_k);
  for_rows(logits.count, cost, [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      const float* row = host_row(logits, t);
      std::int32_t* chosen = routing.experts.address() + t * routing.top_k;
      float* weights = routing.weights.address() + t * routing.top_k;
      choose_experts(row, logits.width, routing.top_k, chosen);
      double total = 0.0;
      for (Index r = 0; r < routing.top_k; ++r) {
        total += std::exp(static_cast<double>(row[chosen[r]]) - row[chosen[0]]);
      }
      for (Index r = 0; r < routing.top_k; ++r) {
        const double p = std::exp(static_cast<double>(row[chosen[r]]) - row[chosen[0]]) / total;
        weights[r] = static_cast<float>(p * per_expert_scale.address()[chosen[r]]);
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
  for (Index i = 0; i < routed; ++i) ++first[routing.experts.address()[i] + 1];
  Index count = 0;
  for (Index e = 0; e < num_experts; ++e) {
    if (first[e + 1] > 0) active[count++] = static_cast<std::int32_t>(e);
    first[e + 1] += first[e];
  }
  for (Index i = 0; i < routed; ++i) {
    const std::int32_t place = first[routing.experts.address()[i]]++;
    places[i] = place;
    sorted[place] = static_cast<std::int32_t>(i / routing.top_k);
  }
  // Each entry has moved to the next expert's first place: move them back.
  for (Index e = num_experts; e > 0; --e) first[e] = first[e - 1];
  first[0] = 0;
  return count;
}

void CpuExecutor::pack_expert_rows(
    ConstRows x, Index active, bool routed, const Product& product, std::byte* to) {
  const auto* sorted = scratch_at<std::int32_t>(layout_.sorted_rows);
  const auto* first = scratch_at<std::int32_t>(layout_.first_places);
  const auto* experts = scratch_at<std::int32_t>(layout_.active_experts);
  const Index row_bytes = packed_row_bytes(product);
  PackRows rows = {.x = host_row(x, 0),
                   .stride = x.width,
                   .width = x.width,
                   .arithmetic = product.arithmetic,
                   .integers = product.integers};
  if (x.count == 1 && !routed) {  // one packed row serves all of its experts
    rows.rows = 1;
    rows.packed = to;
    return kernels_.pack_rows(rows, 0, 1);
  }
  const Index last_expert = experts[active - 1];
  const double cost = static_cast<double>(first[last_expert + 1] * x.width) / 2.0;
  for_items(active, cost, [&](Index item) {
    const std::int32_t expert = experts[item];
    PackRows own = rows;
    own.rows = first[expert + 1] - first[expert];
    if (routed) {
      own.x += first[expert] * x.width;
    } else {
      own.gather = sorted + first[expert];
    }
    own.packed = to + first[expert] * row_bytes;
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
  const Index x_bytes = packed_row_bytes(shared);
  Product hidden;  // in the form of packed_out
  hidden.columns = round_up(shared.outputs, kColumnUnit);
  hidden.arithmetic = shared.packed_arithmetic;
  const Index hidden_bytes = packed_row_bytes(hidden);
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

// The product of experts with x, packed for it.
Product CpuExecutor::expert_product(ConstRows x, const CpuMatrix& weights, Index active) {
  Product product = product_of(weights);
  auto* packed = scratch_at<std::byte>(layout_.expert_rows);
  pack_expert_rows(x, active, false, product, packed);
  product.x = packed;
  return product;
}

// Hidden rows in f32, a row for each place: for products that take them in a form that a panel
// cannot write, and for gate and up of different types.
ConstRows CpuExecutor::wide_hidden_rows(ConstRows x,
                                        const CpuMatrix& gate,
                                        const CpuMatrix& up,
                                        Activation activation,
                                        Index active,
                                        Index top_k) {
  const Rows wide =
      device_rows({scratch_at<float>(layout_.wide_hidden), x.count * top_k, gate.rows()});
  const bool one_row = x.count == 1;
  Product product = expert_product(x, gate, active);
  product.out = host_row(wide, 0);
  product.out_stride = wide.width;
  if (gate.same_arithmetic(up)) {
    product.up_panels = up.panels(0);
    product.activation = activation;
    run_expert_products(product, gate, &up, active, one_row);
    return wide;
  }
  run_expert_products(product, gate, nullptr, active, one_row);
  Product other = expert_product(x, up, active);
  other.out = scratch_at<float>(layout_.expert_hidden);
  other.out_stride = wide.width;
  run_expert_products(other, up, nullptr, active, one_row);
  const double cost = static_cast<double>(wide.width);
  for_rows(wide.count, cost, [&](Index first, Index last) {
    for (Index row = first; row < last; ++row) {
      float* const hidden = host_row(wide, row);
      kernels_.gated_multiply(hidden, other.out + row * wide.width, wide.width, activation, hidden);
    }
  });
  return wide;
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
  const Index active = sort_by_expert(routing, x.count, gate.num_matrices());
  count_bytes(static_cast<std::uint64_t>(active) * (gate.bytes() + up.bytes() + down.bytes()));
  Product outputs = product_of(down);
  outputs.x = scratch_at<std::byte>(layout_.expert_hidden);
  if (gate.same_arithmetic(up) && down.arithmetic() != Arithmetic::kInteger) {
    Product hidden = expert_product(x, gate, active);
    hidden.up_panels = up.panels(0);
    hidden.activation = leaf_activation(activation);
    hidden.packed_out = scratch_at<std::byte>(layout_.expert_hidden);
    hidden.packed_arithmetic = down.arithmetic();
    run_expert_products(hidden, gate, &up, active, x.count == 1);
  } else {
    const ConstRows wide =
        wide_hidden_rows(x, gate, up, leaf_activation(activation), active, routing.top_k);
    pack_expert_rows(wide, active, true, outputs, scratch_at<std::byte>(layout_.expert_hidden));
  }
  outputs.out = scratch_at<float>(layout_.expert_rows);
  outputs.out_stride = down.rows();
  run_expert_products(outputs, down, nullptr, active, false);

  const auto* places = scratch_at<std::int32_t>(layout_.places);
  const double cost = static_cast<double>(routing.top_k * out.width) / 4.0;
  for_rows(x.count, cost, [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      kernels_.weighted_sum(outputs.out, outputs.out_stride, places + t * routing.top_k,
                            routing.weights.address() + t * routing.top_k, routing.top_k, out.width,
                            host_row(out, t));
    }
  });
}

}  // namespace kakeya::cpu
