#include "backend/cuda/launch_accesses.h"

#include <algorithm>

#include "backend/cuda/device/integer_strips.h"

namespace kakeya::cuda {
namespace {

// Collects what the parameters of a kernel say.
class Collector {
 public:
  explicit Collector(std::vector<Access>& all) : all_(all) {}

  template <typename T>
  void reads(const T* from, std::int64_t count) {
    add(from, count, false);
  }
  template <typename T>
  void writes(T* to, std::int64_t count) {
    add(to, count, true);
  }

  void reads(const device::ProductRows& rows) {
    if (rows.codes == nullptr) return reads(rows.x, rows.count * rows.width);
    const std::int64_t steps = rows.count * device::num_steps(rows.width);
    reads(rows.codes, steps * device::kStepColumns);
    reads(rows.numbers, steps * device::kStepNumbers);
    reads(rows.low_sums, steps * device::kStepLowSums);
  }

  // Nobody else writes where the host has put them.
  void of(const device::TakeInputsParams& p) {
    writes(p.to, p.count);
    writes(p.ids, p.num_ids);
  }
  void of(const device::EmbedParams& p) {
    reads(p.ids, p.count);
    writes(p.out, p.count * p.table.cols);
  }
  void of(const device::RopeTableParams& p) {
    reads(p.positions, p.count);
    writes(p.cos, p.count * p.half);
    writes(p.sin, p.count * p.half);
  }
  void of(const device::NormParams& p) {
    reads(p.x, p.count * p.width);
    writes(p.out, p.count * p.width);
  }
  void of(const device::RoundParams& p) {
    reads(p.x, p.count * p.width);
    writes_codes(p);
  }
  void of(const device::AddParams& p) {
    reads(p.a, p.size);
    reads(p.b, p.size);
    writes(p.out, p.size);
  }
  void of(const device::AddVectorParams& p) { writes(p.x, p.count * p.width); }
  void of(const device::CopyColumnsParams& p) {
    reads(p.x, p.count * p.width);
    writes(p.out, p.count * p.out_width);
  }
  void of(const device::ConvolveParams& p) {
    reads(p.x, p.count * p.width);
    reads(p.own, p.count * p.own_width);
    writes(p.out, p.count * p.width);
  }
  void of(const device::ProductParams& p) {
    reads(p.rows);
    writes(p.out, p.rows.count * p.weight.rows);
  }
  void of(const device::IntegerProductParams& p) {
    reads(p.rows);
    for (std::int64_t i = 0; i < p.num_parts; ++i) {
      writes(p.parts[i].out, p.rows.count * p.parts[i].weight.rows);
    }
  }
  void of(const device::GatedProductParams& p) {
    reads(p.rows);
    writes(p.out, p.rows.count * p.gate.rows);
  }
  void of(const device::RopeParams& p) {
    reads(p.cos, p.count * p.half);
    reads(p.sin, p.count * p.half);
    writes(p.x, p.count * p.width);
  }
  void of(const device::StoreParams& p, std::int64_t rows) {
    reads(p.rows, rows * p.to.cache.num_kv_heads * p.to.cache.head_dim);
    stores(p.to, p.are_keys);
  }
  void of(const device::RouteParams& p, std::int64_t rows) {
    reads(p.logits, rows * p.num_experts);
    writes(p.experts, rows * p.top_k);
    writes(p.weights, rows * p.top_k);
    writes(p.counter, 1);
  }
  void of(const device::EarlyRouteParams& p) {
    of(p.product);
    of(p.route, 1);
  }
  void of(const device::ExpertHiddenParams& p) {
    reads(p.rows);
    reads(p.experts, p.rows.count * p.top_k);
    reads(p.groups.order, 1);
    writes(p.hidden, p.rows.count * p.top_k * p.gate.rows);
    writes_codes(p.rounded);
  }
  void of(const device::ExpertOutputParams& p) {
    const std::int64_t rows = p.rows.count / p.top_k;
    reads(p.rows);
    reads(p.experts, p.rows.count);
    reads(p.weights, p.rows.count);
    reads(p.groups.order, 1);
    writes(p.ranks, p.rows.count * p.down.rows);
    writes(p.out, rows * p.down.rows);
  }
  void of(const device::PlainOutputsParams& p) {
    of(p.experts);
    reads(p.rows);
    writes(p.product.out, p.rows.count * p.product.weight.rows);
  }
  void of(const device::RowStepsParams& p, std::int64_t rows) {
    for (std::int32_t i = p.num_weights; i < p.num_brought; ++i) {
      reads(p.brought[i], rows * p.width);
    }
    for (std::int32_t i = 0; i < p.count; ++i) {
      const device::RowStep& step = p.steps[i];
      const bool copies = step.kind == device::RowStepKind::kCopy;
      writes(step.out, rows * (copies ? step.out_width : p.width));
      const std::int64_t steps = rows * device::num_steps(p.width);
      writes(step.codes, steps * device::kStepColumns);
      writes(step.numbers, steps * device::kStepNumbers);
      writes(step.low_sums, steps * device::kStepLowSums);
    }
  }
  void of(const device::ResidualStepsParams& p, std::int64_t rows) {
    for (const float* read : {p.a.x, p.b.x, p.x}) reads(read, rows * p.width);
    for (float* made : {p.a.out, p.b.out, p.sum_out, p.normed_sum_out, p.out}) {
      writes(made, rows * p.width);
    }
    writes(p.copy, rows * p.copy_width);
    const std::int64_t steps = rows * device::num_steps(p.width);
    for (std::int32_t k = 0; k < p.num_norms; ++k) {
      writes(p.norms[k].out, rows * p.width);
      writes(p.norms[k].codes, steps * device::kStepColumns);
      writes(p.norms[k].numbers, steps * device::kStepNumbers);
      writes(p.norms[k].low_sums, steps * device::kStepLowSums);
    }
  }
  void of(const device::HeadStepsParams& p, std::int64_t rows) {
    for (std::int64_t i = 0; i < p.count; ++i) {
      const device::HeadTrack& track = p.tracks[i];
      reads(track.x, rows * track.heads * p.size);
      writes(track.out, rows * track.heads * p.size);
      reads(track.cos, rows * p.size / 2);
      reads(track.sin, rows * p.size / 2);
      if (track.stored != device::StoredAs::kNothing) {
        stores(p.to, track.stored == device::StoredAs::kKeys);
      }
    }
  }
  // The three kinds of kernels of tensor_attention.h: those that make all of it, parts, and the sum
  // of parts.
  void of_attention(const device::AttentionParams& p, bool makes_parts, bool joins) {
    reads(p.positions, p.rows);
    const std::int64_t size = p.rows * p.num_heads * p.cache.head_dim;
    if (joins) {
      reads(p.partials, p.room);
    } else {
      reads(p.queries, size);
      reads(p.cache.keys, 1);
      reads(p.cache.values, 1);
    }
    if (makes_parts) return writes(p.partials, p.room);
    writes(p.out, size);
    writes_codes(p.rounded);
  }
  void of_joined(const device::AttentionParams& p) {
    of_attention(p, true, false);
    of_attention(p, false, true);
    writes(p.counters, p.cache.num_kv_heads);
  }
  void of_attention(const device::ManyAttentionsParams& p, bool makes_parts, bool joins) {
    for (std::int64_t i = 0; i < p.count; ++i) of_attention(p.sequences[i], makes_parts, joins);
    writes_codes(p.rounded);
  }
  void of(const device::GroupExpertsParams& p) {
    reads(p.experts, p.pairs);
    writes(p.groups.order, 1);
  }

 private:
  void writes_codes(const device::RoundParams& p) {
    const std::int64_t steps = p.count * device::num_steps(p.width);
    writes(p.codes, steps * device::kStepColumns);
    writes(p.numbers, steps * device::kStepNumbers);
    writes(p.low_sums, steps * device::kStepLowSums);
  }

  // Rows of a cache: their tables stand for them.
  void stores(const device::CachePlaces& to, bool are_keys) {
    reads(to.positions, to.sequences[to.num_sequences - 1].end);
    for (std::int64_t i = 0; i < to.num_sequences; ++i) {
      const device::SequenceRows& rows = to.sequences[i];
      add(are_keys ? rows.keys : rows.values, 1, true);
    }
  }

  template <typename T>
  void add(const T* begin, std::int64_t count, bool writes) {
    if (begin == nullptr || count == 0) return;
    const auto at = reinterpret_cast<std::uintptr_t>(begin);
    all_.push_back({at, at + static_cast<std::uintptr_t>(count) * sizeof(T), writes});
  }

  std::vector<Access>& all_;
};

bool is_attention_of_many(Kernel kernel) {
  switch (kernel) {
    case Kernel::tensor_parts_of_many:
    case Kernel::one_vector_parts_of_many:
    case Kernel::join_parts_of_many:
      return true;
    default:
      return false;
  }
}

bool is_tensor_attention(Kernel kernel) {
  switch (kernel) {
    case Kernel::tensor_attention:
    case Kernel::wide_tensor_attention:
    case Kernel::tensor_one_vector_attention:
    case Kernel::tensor_attention_part:
    case Kernel::wide_tensor_attention_part:
    case Kernel::tensor_one_vector_part:
    case Kernel::joined_attention_part:
    case Kernel::join_attention_parts:
      return true;
    default:
      return is_attention_of_many(kernel);
  }
}

// Says what a launch touches; false if nobody knows.
bool collect(Kernel kernel, const LaunchShape& shape, const void* p, Collector& to) {
  switch (kernel) {
    case Kernel::take_inputs:
      to.of(*static_cast<const device::TakeInputsParams*>(p));
      return true;
    case Kernel::embed:
      to.of(*static_cast<const device::EmbedParams*>(p));
      return true;
    case Kernel::rope_table:
      to.of(*static_cast<const device::RopeTableParams*>(p));
      return true;
    case Kernel::rms_norm:
      to.of(*static_cast<const device::NormParams*>(p));
      return true;
    case Kernel::round_rows:
      to.of(*static_cast<const device::RoundParams*>(p));
      return true;
    case Kernel::add:
      to.of(*static_cast<const device::AddParams*>(p));
      return true;
    case Kernel::add_vector:
      to.of(*static_cast<const device::AddVectorParams*>(p));
      return true;
    case Kernel::convolve:
      to.of(*static_cast<const device::ConvolveParams*>(p));
      return true;
    case Kernel::copy_columns:
      to.of(*static_cast<const device::CopyColumnsParams*>(p));
      return true;
    case Kernel::product:
    case Kernel::row_product:
    case Kernel::early_row_product:
    case Kernel::tensor_product:
    case Kernel::tensor_product_some:
    case Kernel::tensor_product_rows:
      to.of(*static_cast<const device::ProductParams*>(p));
      return true;
    case Kernel::integer_row_product:
    case Kernel::integer_product:
    case Kernel::integer_product_rows:
    case Kernel::integer_product_tiles:
    case Kernel::split_integer_product:
    case Kernel::plain_product:
      to.of(*static_cast<const device::IntegerProductParams*>(p));
      return true;
    case Kernel::gated_product:
    case Kernel::gated_row_product:
    case Kernel::gated_tensor_product:
    case Kernel::gated_tensor_product_some:
    case Kernel::gated_tensor_product_rows:
    case Kernel::split_gated_product:
    case Kernel::gated_integer_product:
    case Kernel::gated_integer_product_rows:
    case Kernel::gated_integer_product_tiles:
      to.of(*static_cast<const device::GatedProductParams*>(p));
      return true;
    case Kernel::rope:
      to.of(*static_cast<const device::RopeParams*>(p));
      return true;
    case Kernel::store:
      to.of(*static_cast<const device::StoreParams*>(p), shape.blocks_y);
      return true;
    case Kernel::route:
      to.of(*static_cast<const device::RouteParams*>(p), shape.blocks_x);
      return true;
    case Kernel::early_route:
      to.of(*static_cast<const device::EarlyRouteParams*>(p));
      return true;
    case Kernel::expert_hidden:
    case Kernel::grouped_expert_hidden:
    case Kernel::split_expert_hidden:
    case Kernel::plain_expert_hidden:
    case Kernel::grouped_integer_hidden:
    case Kernel::few_expert_hidden:
    case Kernel::few_expert_hidden_rows:
    case Kernel::tiled_expert_hidden:
      to.of(*static_cast<const device::ExpertHiddenParams*>(p));
      return true;
    case Kernel::expert_output:
    case Kernel::grouped_expert_output:
    case Kernel::integer_expert_output:
    case Kernel::plain_expert_output:
    case Kernel::grouped_integer_output:
    case Kernel::few_expert_output:
    case Kernel::tiled_expert_output:
    case Kernel::weigh_experts:
      to.of(*static_cast<const device::ExpertOutputParams*>(p));
      return true;
    case Kernel::plain_outputs:
      to.of(*static_cast<const device::PlainOutputsParams*>(p));
      return true;
    case Kernel::residual_steps:
      to.of(*static_cast<const device::ResidualStepsParams*>(p), shape.blocks_x);
      return true;
    case Kernel::row_steps:
      to.of(*static_cast<const device::RowStepsParams*>(p), shape.blocks_x);
      return true;
    case Kernel::head_steps:
      to.of(*static_cast<const device::HeadStepsParams*>(p), shape.blocks_y);
      return true;
    case Kernel::tensor_attention:
    case Kernel::wide_tensor_attention:
    case Kernel::tensor_one_vector_attention:
      to.of_attention(*static_cast<const device::AttentionParams*>(p), false, false);
      return true;
    case Kernel::tensor_attention_part:
    case Kernel::wide_tensor_attention_part:
    case Kernel::tensor_one_vector_part:
      to.of_attention(*static_cast<const device::AttentionParams*>(p), true, false);
      return true;
    case Kernel::joined_attention_part:
      to.of_joined(*static_cast<const device::AttentionParams*>(p));
      return true;
    case Kernel::join_attention_parts:
      to.of_attention(*static_cast<const device::AttentionParams*>(p), false, true);
      return true;
    case Kernel::tensor_parts_of_many:
    case Kernel::one_vector_parts_of_many:
      to.of_attention(*static_cast<const device::ManyAttentionsParams*>(p), true, false);
      return true;
    case Kernel::join_parts_of_many:
      to.of_attention(*static_cast<const device::ManyAttentionsParams*>(p), false, true);
      return true;
    case Kernel::group_experts:
    case Kernel::group_many_experts:
      to.of(*static_cast<const device::GroupExpertsParams*>(p));
      return true;
    default:
      return false;
  }
}

}  // namespace

LaunchAccesses::LaunchAccesses(const LaunchList& launches, std::size_t i) {
  Collector to(all_);
  is_known_ = collect(launches.kernel(i), launches.shape(i), launches.parameters(i), to);
}

bool LaunchAccesses::conflicts_with(const LaunchAccesses& other) const {
  if (!is_known_ || !other.is_known_) return true;
  return std::any_of(all_.begin(), all_.end(), [&](const Access& a) {
    return std::any_of(other.all_.begin(), other.all_.end(),
                       [&](const Access& b) { return (a.writes || b.writes) && a.overlaps(b); });
  });
}

void LaunchAccesses::add(const LaunchAccesses& other) {
  is_known_ = is_known_ && other.is_known_;
  all_.insert(all_.end(), other.all_.begin(), other.all_.end());
}

bool may_change_alone(const LaunchList& launches, std::size_t i) {
  const Kernel kernel = launches.kernel(i);
  return kernel == Kernel::take_inputs || is_tensor_attention(kernel) ||
         !LaunchAccesses(launches, i).is_known();
}

namespace {

bool have_equal_accesses(const device::AttentionParams& one, const device::AttentionParams& other) {
  return one.queries == other.queries && one.positions == other.positions && one.out == other.out &&
         one.partials == other.partials && one.counters == other.counters &&
         one.rows == other.rows && one.room == other.room && one.num_heads == other.num_heads &&
         one.cache.keys == other.cache.keys && one.cache.values == other.cache.values &&
         one.cache.head_dim == other.cache.head_dim;
}

}  // namespace

bool have_equal_accesses(const LaunchList& a, const LaunchList& b, std::size_t i) {
  if (!is_tensor_attention(a.kernel(i))) return true;
  if (!is_attention_of_many(a.kernel(i))) {
    return have_equal_accesses(*static_cast<const device::AttentionParams*>(a.parameters(i)),
                               *static_cast<const device::AttentionParams*>(b.parameters(i)));
  }
  const auto& one = *static_cast<const device::ManyAttentionsParams*>(a.parameters(i));
  const auto& other = *static_cast<const device::ManyAttentionsParams*>(b.parameters(i));
  return one.count == other.count &&
         std::equal(one.sequences, one.sequences + one.count, other.sequences,
                    [](const auto& p, const auto& q) { return have_equal_accesses(p, q); });
}

}  // namespace kakeya::cuda
