#include "backend/cpu/cpu_executor.h"

#include <algorithm>
#include <utility>

namespace kakeya::cpu {
namespace {

// Weights that one item streams: enough to forget the cost of handing it out, small enough for the
// last items of two threads to end together.
constexpr Index kItemBytes = Index{256} << 10;
constexpr Index kManyRows = 64;
// Packed rows that stay in a second-level cache while all panels pass by.
constexpr Index kRowBytesInCache = Index{768} << 10;

// The speeds of a thread that reads memory and computes, to estimate times.
constexpr double kBytesPerNanosecond = 15.0;
constexpr double kElementsPerNanosecond = 2.0;

const CpuMatrix& as_cpu(const Matrix& matrix) {
  return static_cast<const CpuMatrix&>(matrix);
}

double row_nanoseconds(Index elements) {
  return static_cast<double>(elements) / kElementsPerNanosecond;
}

}  // namespace

ScratchLayout::ScratchLayout(const ExecutorPlan& plan) {
  const auto place = [this](Index elements) {
    const std::uint64_t at = bytes;
    bytes += MemoryBudget::charged_bytes(static_cast<std::uint64_t>(elements) * 4);
    return at;
  };
  const Index routed = plan.max_rows * plan.top_k_experts;
  packed_rows = place(plan.max_rows * round_up(plan.max_matmul_width, kIntegerUnit));
  expert_rows = place(routed * round_up(plan.hidden_size, kIntegerUnit));
  expert_hidden = place(routed * round_up(plan.moe_intermediate_size, kIntegerUnit));
  wide_hidden = place(routed * plan.moe_intermediate_size);
  sorted_rows = place(routed);
  places = place(routed);
  first_places = place(plan.num_experts + 1);
  active_experts = place(plan.num_experts);
  turned_pairs = round_up(plan.max_coded_head_dim / 2, 16);
  turns = place(2 * kKeyChunk * turned_pairs);
}

CpuExecutor::CpuExecutor(const Kernels& kernels,
                         ThreadPool& pool,
                         const ExecutorPlan& plan,
                         Buffer scratch)
    : kernels_(kernels), pool_(pool), layout_(plan), scratch_(std::move(scratch)) {
  segments_.reserve(static_cast<std::size_t>(plan.max_sequences));
  turned_by_.reserve(static_cast<std::size_t>(plan.max_coded_head_dim / 2));
}

void CpuExecutor::embed(const Matrix& table, float scale, Rows out) {
  const std::span<const TokenId> ids = batch().ids;
  for_rows(out.count, row_nanoseconds(4 * out.width), [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      as_cpu(table).gather(ids[static_cast<std::size_t>(t)], scale, host_row(out, t));
    }
  });
}

void CpuExecutor::rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) {
  for_rows(x.count, row_nanoseconds(x.width), [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      kernels_.rms_norm(host_row(x, t), weight.address(), x.width, eps, host_row(out, t));
    }
  });
}

void CpuExecutor::pack(ConstRows x, Product& product) {
  auto* packed = scratch_at<std::byte>(layout_.packed_rows);
  const PackRows rows = {.x = host_row(x, 0),
                         .stride = x.width,
                         .rows = x.count,
                         .width = x.width,
                         .arithmetic = product.arithmetic,
                         .integers = product.integers,
                         .packed = packed};
  for_rows(x.count, row_nanoseconds(x.width),
           [&](Index first, Index last) { kernels_.pack_rows(rows, first, last); });
  product.x = packed;
  product.rows = x.count;
}

Product CpuExecutor::product_of(const CpuMatrix& weights) {
  Product product;
  product.columns = weights.padded_columns();
  product.panels = weights.panels(0);
  product.panel_bytes = weights.panel_bytes();
  product.outputs = weights.rows();
  product.arithmetic = weights.arithmetic();
  product.integers = weights.integers();
  return product;
}

double CpuExecutor::product_nanoseconds(const Product& product, Index panels, Index rows) const {
  const double matrices = product.up_panels == nullptr ? 1.0 : 2.0;
  const double bytes = matrices * static_cast<double>(panels * product.panel_bytes);
  const double multiplications = matrices *
                                 static_cast<double>(panels * kPanelRows * product.columns) *
                                 static_cast<double>(rows);
  const double gflops = product.arithmetic == Arithmetic::kInteger    ? kernels_.integer_gflops
                        : product.arithmetic == Arithmetic::kBf16Fast ? kernels_.fast_gflops
                                                                      : kernels_.exact_gflops;
  return std::max(bytes / kBytesPerNanosecond, 2.0 * multiplications / gflops);
}

Index CpuExecutor::packed_row_bytes(const Product& product) const {
  if (product.arithmetic == Arithmetic::kInteger) {
    return integer_row_bytes(product.columns, product.integers);
  }
  const bool fast = product.arithmetic == Arithmetic::kBf16Fast;
  return product.columns * (fast ? kernels_.fast_element_bytes : 4);
}

void CpuExecutor::run_product(const Product& product, Index panels) {
  const bool gated = product.up_panels != nullptr;
  const Index tile = std::max<Index>(1, gated ? kernels_.panel_group / 2 : kernels_.panel_group);
  const Index tile_bytes = tile * product.panel_bytes * (gated ? 2 : 1);
  // With many rows an item computes long and brings in its panels meanwhile, all but the first.
  const Index item_bytes = product.rows > kManyRows ? 4 * kItemBytes : kItemBytes;
  const Index tiles = std::max<Index>(1, item_bytes / tile_bytes);
  // Small matrices are cut finer, so that every thread gets a few items.
  const Index most = round_up(panels, tile) / tile / (4 * pool_.num_threads());
  const Index group = tile * std::clamp<Index>(tiles, 1, std::max<Index>(1, most));
  const Index groups = (panels + group - 1) / group;
  const Index rows_in_cache = kRowBytesInCache / packed_row_bytes(product);
  const Index chunk = std::max<Index>(4 * kRowBlock, rows_in_cache / 32 * 32);
  const Index chunks = (product.rows + chunk - 1) / chunk;
  for_items(groups * chunks, product_nanoseconds(product, panels, product.rows), [&](Index item) {
    const Index first_panel = item % groups * group;
    const Index first_row = item / groups * chunk;
    kernels_.multiply(product, {.first_row = first_row,
                                .last_row = std::min(first_row + chunk, product.rows),
                                .first_panel = first_panel,
                                .last_panel = std::min(first_panel + group, panels)});
  });
}

void CpuExecutor::matmul(ConstRows x, const Matrix& w, Rows out) {
  if (x.count == 0) return;
  const CpuMatrix& matrix = as_cpu(w);
  count_bytes(matrix.bytes());
  Product product = product_of(matrix);
  pack(x, product);
  product.out = host_row(out, 0);
  product.out_stride = out.width;
  run_product(product, matrix.num_panels());
}

// out = activation(out) * (x up^T), a block of 16 rows and 16 outputs at a time: for a checkpoint
// that stores gate and up in different types.
void CpuExecutor::multiply_gated(ConstRows x,
                                 const CpuMatrix& up,
                                 Activation activation,
                                 Rows out) {
  count_bytes(up.bytes());
  Product product = product_of(up);
  pack(x, product);
  product.out_stride = kPanelRows;
  const std::byte* packed = product.x;
  const Index row_bytes = packed_row_bytes(product);
  const Index panels = up.num_panels();
  const Index blocks = (x.count + kRowBlock - 1) / kRowBlock;
  for_items(panels * blocks, product_nanoseconds(product, panels, x.count), [&](Index item) {
    const Index panel = item % panels;
    const Index row = item / panels * kRowBlock;
    float block[kRowBlock * kPanelRows];
    Product part = product;
    part.x = packed + row * row_bytes;
    part.rows = std::min(kRowBlock, x.count - row);
    part.panels = up.panels(0) + panel * product.panel_bytes;
    part.outputs = std::min(kPanelRows, up.rows() - panel * kPanelRows);
    part.out = block;
    kernels_.multiply(part,
                      {.first_row = 0, .last_row = part.rows, .first_panel = 0, .last_panel = 1});
    for (Index r = 0; r < part.rows; ++r) {
      float* gate = host_row(out, row + r) + panel * kPanelRows;
      kernels_.gated_multiply(gate, block + r * kPanelRows, part.outputs, activation, gate);
    }
  });
}

void CpuExecutor::gated_matmul(
    ConstRows x, const Matrix& gate, const Matrix& up, GateActivation activation, Rows out) {
  const CpuMatrix& gate_matrix = as_cpu(gate);
  const CpuMatrix& up_matrix = as_cpu(up);
  if (x.count == 0) return;
  if (!gate_matrix.same_arithmetic(up_matrix)) {
    matmul(x, gate, out);
    return multiply_gated(x, up_matrix, leaf_activation(activation), out);
  }
  count_bytes(gate_matrix.bytes() + up_matrix.bytes());
  Product product = product_of(gate_matrix);
  pack(x, product);
  product.up_panels = up_matrix.panels(0);
  product.activation = leaf_activation(activation);
  product.out = host_row(out, 0);
  product.out_stride = out.width;
  run_product(product, gate_matrix.num_panels());
}

void CpuExecutor::gated_multiply(ConstRows gate,
                                 DevicePointer<const float> other,
                                 std::int64_t other_stride,
                                 GateActivation activation,
                                 Rows out) {
  for_rows(gate.count, row_nanoseconds(4 * gate.width), [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      kernels_.gated_multiply(host_row(gate, t), other.address() + t * other_stride, gate.width,
                              leaf_activation(activation), host_row(out, t));
    }
  });
}

void CpuExecutor::add(ConstRows a, ConstRows b, float scale, Rows out) {
  for_rows(a.count, row_nanoseconds(a.width), [&](Index first, Index last) {
    kernels_.add(host_row(a, first), host_row(b, first), (last - first) * a.width, scale,
                 host_row(out, first));
  });
}

void CpuExecutor::add_vector(Rows x, ConstVector vector) {
  for_rows(x.count, row_nanoseconds(x.width), [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      kernels_.add(host_row(x, t), vector.data.address(), x.width, 1.0F, host_row(x, t));
    }
  });
}

void CpuExecutor::convolve(ConstRows x, const RowConvolution& convolution, Rows out) {
  const Index taps = convolution.taps;
  const Index group = convolution.group;
  const Index groups = x.width / group;
  const auto convolve_row = [&](Index t, Index before) {
    float* const to = host_row(out, t);
    std::fill_n(to, x.width, 0.0F);
    for (Index o = 0; o < std::min(taps, before + 1); ++o) {
      const float* const own = host_row(convolution.own, t) + convolution.column + o * groups;
      const float* const base = convolution.base.data.address() + o * x.width;
      const float* const from = host_row(x, t - o);
      for (Index d = 0; d < x.width; ++d) to[d] += (base[d] + own[d / group]) * from[d];
    }
  };
  for (const Segment& segment : batch().segments) {
    for_rows(segment.rows, row_nanoseconds(2 * taps * x.width), [&](Index first, Index last) {
      for (Index r = first; r < last; ++r) convolve_row(segment.first_row + r, r);
    });
  }
}

void CpuExecutor::softcap(Rows x, float cap) {
  // A single row is the usual case and long: split it inside.
  constexpr Index kRun = 4096;
  const Index elements = x.count * x.width;
  for_items((elements + kRun - 1) / kRun, row_nanoseconds(4 * elements), [&](Index item) {
    const Index begin = item * kRun;
    kernels_.softcap(host_row(x, 0) + begin, std::min(kRun, elements - begin), cap);
  });
}

void CpuExecutor::gather_logit_rows(ConstRows x, Rows out) {
  float* to = host_row(out, 0);
  for (const Segment& segment : batch().segments) {
    const Index first = segment.first_row + segment.rows - segment.logit_rows;
    to = std::copy_n(host_row(x, first), segment.logit_rows * x.width, to);
  }
}

void CpuExecutor::copy_columns(ConstRows x,
                               DevicePointer<float> out,
                               std::int64_t out_width,
                               std::int64_t column) {
  for_rows(x.count, row_nanoseconds(x.width), [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      std::copy_n(host_row(x, t), x.width, out.address() + t * out_width + column);
    }
  });
}

}  // namespace kakeya::cpu
