#include "backend/cuda/fold_roundings.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cuda/device/attention_parts.h"
#include "backend/cuda/device/integer_products.h"
#include "backend/cuda/device/run_groups.h"
#include "backend/cuda/join_attention.h"
#include "backend/cuda/launch_accesses.h"
#include "backend/cuda/launch_shapes.h"

namespace kakeya::cuda {
namespace {

// The most groups of four runs that a warp rounds on its own. More of them keep a block longer than
// a launch takes that rounds each row once.
constexpr std::int64_t kMostGroups = 9;

template <typename Params>
const Params& parameters(const LaunchList& launches, std::size_t i) {
  return *static_cast<const Params*>(launches.parameters(i));
}

// A kernel that reads codes of rows. All of these have ProductRows as their first parameter.
struct CodeReader {
  const device::ProductRows* rows = nullptr;  // null: it reads none
  const device::StripPlan* plan = nullptr;    // of those that take rows in chunks
  std::int64_t rounds = 1;                    // how often a warp brings rows
  std::int64_t tile_rows = 1;                 // at most; 0: it rounds none
  bool by_warps = false;                      // a warp brings rows for itself
};

template <typename Params>
CodeReader reader_of(const void* parameters, std::int64_t tile_rows, bool has_chunks) {
  const auto& p = *static_cast<const Params*>(parameters);
  return {&p.rows, has_chunks ? &p.plan : nullptr, 1, tile_rows, false};
}

CodeReader reader(const LaunchList& launches, std::size_t i) {
  using device::ExpertHiddenParams;
  using device::ExpertOutputParams;
  using device::GatedProductParams;
  using device::IntegerProductParams;
  const void* const p = launches.parameters(i);
  switch (launches.kernel(i)) {
    case Kernel::split_integer_product:
    case Kernel::plain_product:
      return reader_of<IntegerProductParams>(p, 1, false);
    case Kernel::integer_row_product:
      return reader_of<IntegerProductParams>(p, 1, true);
    case Kernel::integer_product:
      return reader_of<IntegerProductParams>(p, device::kIntegerRows, true);
    case Kernel::integer_product_rows:
    case Kernel::integer_product_tiles:
      return reader_of<IntegerProductParams>(p, 0, true);
    case Kernel::split_gated_product:
    case Kernel::gated_integer_product:
    case Kernel::gated_integer_product_rows:
    case Kernel::gated_integer_product_tiles:
      return reader_of<GatedProductParams>(p, 0, true);
    case Kernel::plain_expert_hidden:
      return reader_of<ExpertHiddenParams>(p, 1, false);
    case Kernel::split_expert_hidden:
    case Kernel::grouped_integer_hidden:
    case Kernel::few_expert_hidden:
    case Kernel::few_expert_hidden_rows:
    case Kernel::tiled_expert_hidden:
      return reader_of<ExpertHiddenParams>(p, 0, true);
    case Kernel::plain_expert_output:
    case Kernel::few_expert_output:
      return reader_of<ExpertOutputParams>(p, 0, false);
    case Kernel::grouped_integer_output:
      return reader_of<ExpertOutputParams>(p, device::kGroupedRows, true);
    case Kernel::tiled_expert_output:
      return reader_of<ExpertOutputParams>(p, 0, false);
    case Kernel::integer_expert_output: {
      CodeReader ranks = reader_of<ExpertOutputParams>(p, 1, true);
      ranks.rounds = ceil_div(static_cast<const ExpertOutputParams*>(p)->top_k,
                              launches.shape(i).threads / dev::kWarp);
      ranks.by_warps = true;
      return ranks;
    }
    default:
      return {};
  }
}

// True if blocks of such a launch have time to round what they read, and do it once.
bool can_round(const CodeReader& reader, const LaunchShape& shape) {
  const device::ProductRows& rows = *reader.rows;
  if (reader.tile_rows == 0) return false;
  if (reader.plan != nullptr && reader.plan->chunk_steps < device::num_steps(rows.width)) {
    return false;
  }
  if (reinterpret_cast<std::uintptr_t>(rows.x) % alignof(device::FourFloats) != 0) return false;
  const std::int64_t groups = std::min(rows.count, reader.tile_rows) *
                              ceil_div(rows.width, device::kGroupColumns) * reader.rounds;
  const int warps = reader.by_warps ? 1 : shape.threads / dev::kWarp;
  return ceil_div(groups, warps) <= kMostGroups;
}

// True of kernels whose blocks make whole runs of hidden columns.
bool makes_hidden_runs(Kernel kernel) {
  return kernel == Kernel::plain_expert_hidden || kernel == Kernel::few_expert_hidden ||
         kernel == Kernel::few_expert_hidden_rows;
}

class Folding {
 public:
  explicit Folding(FusedLaunches& fused) : fused_(fused), from_(fused.launches) {}

  void run() {
    moved_.resize(from_.size());
    is_left_out_.resize(from_.size());
    rounds_.resize(from_.size());
    bool changes = false;
    for (std::size_t i = 0; i < from_.size(); ++i) {
      if (from_.kernel(i) != Kernel::round_rows) continue;
      is_left_out_[i] = is_joined(i) || find_only_reader(i);
      changes = changes || is_left_out_[i];
    }
    if (changes) write();
  }

 private:
  const device::RoundParams& rounding(std::size_t i) const {
    return parameters<device::RoundParams>(from_, i);
  }

  // True if the launch before a rounding makes what it rounds, and can round it.
  bool is_joined(std::size_t i) const {
    if (i == 0) return false;
    if (makes_hidden_runs(from_.kernel(i - 1))) {
      const auto& p = parameters<device::ExpertHiddenParams>(from_, i - 1);
      const device::RoundParams& rounded = rounding(i);
      return rounded.x == p.hidden && rounded.width == p.gate.rows &&
             rounded.count == p.rows.count * p.top_k;
    }
    if (from_.kernel(i - 1) == Kernel::join_parts_of_many) {
      return device::makes_rows_of(parameters<device::ManyAttentionsParams>(from_, i - 1),
                                   rounding(i));
    }
    if (from_.kernel(i - 1) != Kernel::join_attention_parts) return false;
    return device::makes_rows_of(parameters<device::AttentionParams>(from_, i - 1), rounding(i));
  }

  // Marks the launch that reads the codes, if it is the only one and can round the rows.
  bool find_only_reader(std::size_t i) {
    const device::RoundParams& p = rounding(i);
    std::size_t only = SIZE_MAX;
    for (std::size_t later = i + 1; later < from_.size(); ++later) {
      if (writes_codes(later, p.codes)) break;
      const device::ProductRows* const rows = reader(from_, later).rows;
      if (rows == nullptr || rows->codes != p.codes) continue;
      if (only != SIZE_MAX) return false;
      only = later;
    }
    if (only == SIZE_MAX) return false;
    const CodeReader found = reader(from_, only);
    const device::ProductRows& rows = *found.rows;
    const bool is_same = rows.x == p.x && rows.count == p.count && rows.width == p.width;
    if (!is_same || !can_round(found, from_.shape(only)) || !stays_until(i, only)) return false;
    rounds_[only] = true;
    return true;
  }

  bool writes_codes(std::size_t i, const std::int8_t* codes) const {
    if (from_.kernel(i) == Kernel::round_rows) return rounding(i).codes == codes;
    if (from_.kernel(i) == Kernel::residual_steps) {
      const auto& p = parameters<device::ResidualStepsParams>(from_, i);
      return std::any_of(p.norms, p.norms + p.num_norms,
                         [&](const device::ResidualNorm& norm) { return norm.codes == codes; });
    }
    if (from_.kernel(i) != Kernel::row_steps) return false;
    const auto& p = parameters<device::RowStepsParams>(from_, i);
    return std::any_of(p.steps, p.steps + p.count,
                       [&](const device::RowStep& step) { return step.codes == codes; });
  }

  // True if no launch behind a rounding writes what it reads, up to another one and with that: its
  // blocks read and write at the same time.
  bool stays_until(std::size_t i, std::size_t last) const {
    const device::RoundParams& p = rounding(i);
    const auto at = reinterpret_cast<std::uintptr_t>(p.x);
    const Access read = {at, at + static_cast<std::uintptr_t>(p.count * p.width) * sizeof(float),
                         false};
    for (std::size_t later = i + 1; later <= last; ++later) {
      const LaunchAccesses accesses(from_, later);
      if (!accesses.is_known()) return false;
      const bool is_written =
          std::any_of(accesses.all().begin(), accesses.all().end(),
                      [&](const Access& access) { return access.writes && access.overlaps(read); });
      if (is_written) return false;
    }
    return true;
  }

  void write() {
    LaunchList to;
    for (std::size_t i = 0; i < from_.size(); ++i) {
      moved_[i] = to.size();
      if (!is_left_out_[i]) add(i, to);
    }
    for (std::size_t& place : fused_.places) {
      if (place != SIZE_MAX) place = moved_[place];
    }
    fused_.launches = std::move(to);
  }

  void add(std::size_t i, LaunchList& to) const {
    std::vector<std::byte> bytes(kParameterBytes[static_cast<std::size_t>(from_.kernel(i))]);
    std::memcpy(bytes.data(), from_.parameters(i), bytes.size());
    if (i + 1 < from_.size() && is_left_out_[i + 1] && is_joined(i + 1)) {
      if (makes_hidden_runs(from_.kernel(i))) {
        set_rounded<device::ExpertHiddenParams>(i, bytes);
      } else if (from_.kernel(i) == Kernel::join_parts_of_many) {
        set_rounded<device::ManyAttentionsParams>(i, bytes);
      } else {
        set_rounded<device::AttentionParams>(i, bytes);
      }
    }
    if (rounds_[i]) {
      device::ProductRows rows = *reader(from_, i).rows;
      rows.codes = nullptr;
      rows.numbers = nullptr;
      rows.low_sums = nullptr;
      const auto place = reinterpret_cast<const std::byte*>(reader(from_, i).rows) -
                         static_cast<const std::byte*>(from_.parameters(i));
      std::memcpy(bytes.data() + place, &rows, sizeof(rows));
    }
    to.add(from_.kernel(i), from_.shape(i), bytes.data());
  }

  // Hands launch i the rounding behind it.
  template <typename Params>
  void set_rounded(std::size_t i, std::vector<std::byte>& bytes) const {
    auto p = parameters<Params>(from_, i);
    p.rounded = rounding(i + 1);
    std::memcpy(bytes.data(), &p, sizeof(p));
  }

  FusedLaunches& fused_;
  const LaunchList& from_;
  std::vector<std::size_t> moved_;
  std::vector<bool> is_left_out_;
  std::vector<bool> rounds_;  // its rows itself
};

}  // namespace

void fold_roundings(FusedLaunches& fused) {
  Folding(fused).run();
}

namespace {

// The launch goes on rounding what it makes, if it did.
template <typename Params>
bool renew_rounding(LaunchList& fused,
                    std::size_t place,
                    const LaunchList& launches,
                    std::size_t i) {
  auto p = parameters<Params>(launches, i);
  p.rounded = parameters<Params>(fused, place).rounded;
  if (p.rounded.codes != nullptr && !device::makes_rows_of(p, p.rounded)) return false;
  fused.replace(place, launches.shape(i), &p);
  return true;
}

}  // namespace

bool renew_launch(LaunchList& fused, std::size_t place, const LaunchList& launches, std::size_t i) {
  if (fused.kernel(place) == Kernel::joined_attention_part) {
    return renew_joined_attention(fused, place, launches, i);
  }
  if (fused.kernel(place) == Kernel::join_attention_parts) {
    return renew_rounding<device::AttentionParams>(fused, place, launches, i);
  }
  if (fused.kernel(place) == Kernel::join_parts_of_many) {
    return renew_rounding<device::ManyAttentionsParams>(fused, place, launches, i);
  }
  fused.replace(place, launches, i);
  return true;
}

}  // namespace kakeya::cuda
