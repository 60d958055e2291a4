#include "backend/cuda/fuse.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "backend/cuda/device/head_steps.h"
#include "backend/cuda/device/residual_steps.h"
#include "backend/cuda/fold_roundings.h"
#include "backend/cuda/join_attention.h"
#include "backend/cuda/join_outputs.h"
#include "backend/cuda/join_routes.h"
#include "backend/cuda/launch_accesses.h"
#include "backend/cuda/launch_waits.h"
#include "backend/cuda/residual_plan.h"
#include "backend/cuda/row_step_plan.h"
#include "backend/cuda/strip_launch.h"

namespace kakeya::cuda {
namespace {

enum class GroupKind { kAlone, kRows, kHeads, kProducts };

// Launches that become one.
struct Group {
  GroupKind kind;
  std::int64_t width;  // of kRows and kProducts: columns; of kHeads: the size of a head
  std::vector<std::size_t> members;
  LaunchAccesses accesses;
};

bool is_integer_product(Kernel kernel) {
  return kernel == Kernel::integer_row_product || kernel == Kernel::integer_product ||
         kernel == Kernel::integer_product_rows || kernel == Kernel::integer_product_tiles ||
         kernel == Kernel::split_integer_product || kernel == Kernel::plain_product;
}

bool is_stored(const device::HeadTrack& track) {
  return track.stored != device::StoredAs::kNothing;
}

// How far apart launches may lie.
constexpr std::size_t kMostBetween = 12;

class Fusion {
 public:
  Fusion(const LaunchList& launches, std::int64_t rows) : launches_(launches), rows_(rows) {}

  FusedLaunches run() {
    for (std::size_t i = 0; i < launches_.size(); ++i) add(i);
    FusedLaunches fused;
    fused.places.assign(launches_.size(), SIZE_MAX);
    for (const Group& group : groups_) {
      const std::size_t first = group.members.front();
      if (may_change_alone(launches_, first)) fused.places[first] = fused.launches.size();
      write(group, fused.launches);
    }
    return fused;
  }

 private:
  template <typename Params>
  const Params& parameters(std::size_t i) const {
    return *static_cast<const Params*>(launches_.parameters(i));
  }

  // The width of an operation on rows that row_steps() has; 0: none.
  std::int64_t row_width(std::size_t i) const {
    std::int64_t count = 0;
    std::int64_t width = 0;
    if (launches_.kernel(i) == Kernel::rms_norm) {
      const auto& p = parameters<device::NormParams>(i);
      count = p.count, width = p.width;
    } else if (launches_.kernel(i) == Kernel::round_rows) {
      const auto& p = parameters<device::RoundParams>(i);
      count = p.count, width = p.width;
    } else if (launches_.kernel(i) == Kernel::copy_columns) {
      const auto& p = parameters<device::CopyColumnsParams>(i);
      count = p.count, width = p.width;
    } else if (launches_.kernel(i) == Kernel::add_vector) {
      const auto& p = parameters<device::AddVectorParams>(i);
      count = p.count, width = p.width;
    } else if (launches_.kernel(i) == Kernel::add) {
      count = rows_;
      width = parameters<device::AddParams>(i).size % rows_ == 0
                  ? parameters<device::AddParams>(i).size / rows_
                  : 0;
    }
    return count == rows_ && width % dev::kWarp == 0 ? width : 0;
  }

  // The size of the heads of an operation that head_steps() has; 0: none.
  std::int64_t head_size(std::size_t i) const {
    if (launches_.kernel(i) == Kernel::rms_norm) {
      const auto& p = parameters<device::NormParams>(i);
      const bool fits = p.count > rows_ && p.count % rows_ == 0 && p.width <= device::kMaxHeadDim;
      return fits ? p.width : 0;
    }
    if (launches_.kernel(i) == Kernel::rope) {
      const auto& p = parameters<device::RopeParams>(i);
      return p.count == rows_ && 2 * p.half <= device::kMaxHeadDim ? 2 * p.half : 0;
    }
    if (launches_.kernel(i) != Kernel::store) return 0;
    const auto& p = parameters<device::StoreParams>(i);
    const bool fits = p.to.cache.format == device::RowFormat::kBf16 ||
                      p.to.cache.format == device::RowFormat::kF32;
    return fits && launches_.shape(i).blocks_y == rows_ ? p.to.cache.head_dim : 0;
  }

  void add(std::size_t i) {
    Group own = {GroupKind::kAlone, 0, {i}, LaunchAccesses(launches_, i)};
    if (const std::int64_t width = row_width(i); width > 0) {
      own.kind = GroupKind::kRows;
      own.width = width;
    } else if (const std::int64_t size = head_size(i); size > 0) {
      own.kind = GroupKind::kHeads;
      own.width = size;
    } else if (is_integer_product(launches_.kernel(i))) {
      own.kind = GroupKind::kProducts;
      own.width = parameters<device::IntegerProductParams>(i).rows.width;
    }
    if (own.kind != GroupKind::kAlone && (join_earlier(own) || take_later(own))) return;
    groups_.push_back(std::move(own));
  }

  // Brings a launch forward to the first group that it can belong to.
  bool join_earlier(const Group& own) {
    const std::size_t end = groups_.size();
    std::size_t first = end;
    for (std::size_t g = end; g > 0 && end - g < kMostBetween; --g) {
      if (can_unite(groups_[g - 1], own)) first = g - 1;
      if (groups_[g - 1].accesses.conflicts_with(own.accesses)) break;
    }
    if (first == end) return false;
    unite(groups_[first], own);
    return true;
  }

  // Brings a group behind all others, to a launch that can belong to it.
  bool take_later(const Group& own) {
    const std::size_t end = groups_.size();
    for (std::size_t g = end; g > 0 && end - g < kMostBetween; --g) {
      if (groups_[g - 1].kind != own.kind || !can_be_last(g - 1)) continue;
      if (!can_unite(groups_[g - 1], own)) continue;
      unite(groups_[g - 1], own);
      std::rotate(groups_.begin() + static_cast<std::ptrdiff_t>(g) - 1,
                  groups_.begin() + static_cast<std::ptrdiff_t>(g), groups_.end());
      return true;
    }
    return false;
  }

  bool can_be_last(std::size_t g) const {
    return std::none_of(
        groups_.begin() + static_cast<std::ptrdiff_t>(g) + 1, groups_.end(),
        [&](const Group& behind) { return behind.accesses.conflicts_with(groups_[g].accesses); });
  }

  // True if one kernel can run a group and the launch of `own` behind it.
  bool can_unite(const Group& group, const Group& own) const {
    if (group.kind != own.kind || group.width != own.width) return false;
    if (own.kind == GroupKind::kAlone) return false;
    std::vector<std::size_t> all = group.members;
    all.push_back(own.members.front());
    if (own.kind == GroupKind::kRows) {
      return is_by_rows(group, own) && row_steps(all, own.width).has_value();
    }
    if (own.kind == GroupKind::kProducts) {
      return !group.accesses.conflicts_with(own.accesses) && products(all).has_value();
    }
    return head_steps(all).has_value();
  }
  static void unite(Group& group, const Group& own) {
    group.members.push_back(own.members.front());
    group.accesses.add(own.accesses);
  }

  // Where one step writes what another one touches, both have the same row in each block: they
  // begin at the same place. Copies have rows of another width.
  bool is_by_rows(const Group& group, const Group& own) const {
    const auto is_same = [](const Access& a, const Access& b) {
      return !(a.writes || b.writes) || !a.overlaps(b) || (a.begin == b.begin && a.end == b.end);
    };
    return std::all_of(
        own.accesses.all().begin(), own.accesses.all().end(), [&](const Access& access) {
          return std::all_of(group.accesses.all().begin(), group.accesses.all().end(),
                             [&](const Access& other) { return is_same(access, other); });
        });
  }

  // All launches as tracks; none if they are not such that no track touches what another one
  // writes.
  std::optional<device::HeadStepsParams> head_steps(const std::vector<std::size_t>& all) const;
  device::HeadTrack* track_of(device::HeadStepsParams& p, const float* x) const;
  bool add_to_tracks(std::size_t i, device::HeadStepsParams& p) const;
  bool are_apart(const device::HeadStepsParams& p) const;

  // The parts of all launches, but for their plan; none if their rows are not the same.
  std::optional<device::IntegerProductParams> products(const std::vector<std::size_t>& all) const;

  RowOperation row_operation(std::size_t i) const;
  std::vector<RowOperation> row_operations(const std::vector<std::size_t>& all) const;
  // All operations by one launch, if their rows have room.
  std::optional<RowStepPlan> row_steps(const std::vector<std::size_t>& all,
                                       std::int64_t width) const;

  void write(const Group& group, LaunchList& to) const;

  const LaunchList& launches_;
  const std::int64_t rows_;
  std::vector<Group> groups_;
};

// The track that `x` is to be taken from: the one that makes it, or a new one. Null: there is no
// room.
device::HeadTrack* Fusion::track_of(device::HeadStepsParams& p, const float* x) const {
  for (std::int64_t t = 0; t < p.count; ++t) {
    if (p.tracks[t].out == x) return &p.tracks[t];
  }
  if (p.count == device::kMaxHeadTracks) return nullptr;
  device::HeadTrack& track = p.tracks[p.count++];
  track.x = x;
  track.out = const_cast<float*>(x);
  track.eps = -1.0F;
  return &track;
}

bool Fusion::add_to_tracks(std::size_t i, device::HeadStepsParams& p) const {
  if (launches_.kernel(i) == Kernel::rms_norm) {
    const auto& norm = parameters<device::NormParams>(i);
    const bool is_new = std::none_of(p.tracks, p.tracks + p.count,
                                     [&](const auto& track) { return track.out == norm.x; });
    if (!is_new || p.count == device::kMaxHeadTracks) return false;
    device::HeadTrack& track = *track_of(p, norm.x);
    track.out = norm.out;
    track.weight = norm.weight;
    track.eps = norm.eps;
    track.heads = norm.count / rows_;
    return true;
  }
  if (launches_.kernel(i) == Kernel::rope) {
    const auto& rope = parameters<device::RopeParams>(i);
    device::HeadTrack* const track = track_of(p, rope.x);
    if (track == nullptr || track->cos != nullptr || is_stored(*track)) return false;
    track->heads = rope.width / (2 * rope.half);
    track->cos = rope.cos;
    track->sin = rope.sin;
    return true;
  }
  const auto& store = parameters<device::StoreParams>(i);
  device::HeadTrack* const track = track_of(p, store.rows);
  if (track == nullptr || is_stored(*track)) return false;
  const bool has_cache = p.to.cache.head_dim != 0;
  if (has_cache && std::memcmp(&p.to, &store.to, sizeof(p.to)) != 0) return false;
  track->heads = store.to.cache.num_kv_heads;
  track->stored = store.are_keys ? device::StoredAs::kKeys : device::StoredAs::kValues;
  p.to = store.to;
  return true;
}

bool Fusion::are_apart(const device::HeadStepsParams& p) const {
  const auto range = [&](const float* begin, const device::HeadTrack& track, bool writes) {
    const auto at = reinterpret_cast<std::uintptr_t>(begin);
    const std::int64_t count = rows_ * track.heads * p.size;
    return Access{at, at + static_cast<std::uintptr_t>(count) * sizeof(float), writes};
  };
  for (std::int64_t t = 0; t < p.count; ++t) {
    for (std::int64_t other = 0; other < p.count; ++other) {
      const Access out = range(p.tracks[t].out, p.tracks[t], true);
      const bool is_in_place = p.tracks[t].x == p.tracks[t].out;
      if (t == other) {
        if (!is_in_place && out.overlaps(range(p.tracks[t].x, p.tracks[t], false))) return false;
      } else if (out.overlaps(range(p.tracks[other].x, p.tracks[other], false)) ||
                 out.overlaps(range(p.tracks[other].out, p.tracks[other], true))) {
        return false;
      }
    }
  }
  return true;
}

std::optional<device::HeadStepsParams> Fusion::head_steps(
    const std::vector<std::size_t>& all) const {
  device::HeadStepsParams p;
  std::memset(&p, 0, sizeof(p));
  p.size = head_size(all.front());
  for (const std::size_t i : all) {
    if (!add_to_tracks(i, p)) return std::nullopt;
  }
  if (!are_apart(p)) return std::nullopt;
  return p;
}

std::optional<device::IntegerProductParams> Fusion::products(
    const std::vector<std::size_t>& all) const {
  device::IntegerProductParams p;
  std::memset(&p, 0, sizeof(p));
  p.rows = parameters<device::IntegerProductParams>(all.front()).rows;
  for (const std::size_t i : all) {
    const auto& own = parameters<device::IntegerProductParams>(i);
    if (std::memcmp(&p.rows, &own.rows, sizeof(p.rows)) != 0 ||
        p.num_parts + own.num_parts > device::IntegerProductParams::kMostParts) {
      return std::nullopt;
    }
    for (std::int64_t part = 0; part < own.num_parts; ++part) {
      p.parts[p.num_parts++] = own.parts[part];
    }
  }
  return p;
}

RowOperation Fusion::row_operation(std::size_t i) const {
  using device::RowStepKind;
  RowOperation made = {};
  device::RowStep& step = made.step;
  if (launches_.kernel(i) == Kernel::rms_norm) {
    const auto& p = parameters<device::NormParams>(i);
    step.kind = RowStepKind::kNorm;
    step.number = p.eps;
    step.out = p.out;
    made.a = p.x;
    made.b = p.weight;
  } else if (launches_.kernel(i) == Kernel::add) {
    const auto& p = parameters<device::AddParams>(i);
    step.kind = RowStepKind::kAdd;
    step.number = p.scale;
    step.out = p.out;
    made.a = p.a;
    made.b = p.b;
  } else if (launches_.kernel(i) == Kernel::add_vector) {
    const auto& p = parameters<device::AddVectorParams>(i);
    step.kind = RowStepKind::kAdd;
    step.number = 1.0F;
    step.out = p.x;
    made.a = p.x;
    made.b = p.vector;
    made.b_is_vector = true;
  } else if (launches_.kernel(i) == Kernel::copy_columns) {
    const auto& p = parameters<device::CopyColumnsParams>(i);
    step.kind = RowStepKind::kCopy;
    step.out = p.out;
    step.out_width = static_cast<std::int32_t>(p.out_width);
    step.column = static_cast<std::int32_t>(p.column);
    made.a = p.x;
  } else {
    const auto& p = parameters<device::RoundParams>(i);
    step.kind = RowStepKind::kRound;
    step.codes = p.codes;
    step.numbers = p.numbers;
    step.low_sums = p.low_sums;
    made.a = p.x;
  }
  return made;
}

std::vector<RowOperation> Fusion::row_operations(const std::vector<std::size_t>& all) const {
  std::vector<RowOperation> operations;
  for (const std::size_t i : all) operations.push_back(row_operation(i));
  return operations;
}

std::optional<RowStepPlan> Fusion::row_steps(const std::vector<std::size_t>& all,
                                             std::int64_t width) const {
  return plan_row_steps(row_operations(all), rows_, width);
}

void Fusion::write(const Group& group, LaunchList& to) const {
  if (group.members.size() == 1) {
    const std::size_t i = group.members.front();
    return to.add(launches_.kernel(i), launches_.shape(i), launches_.parameters(i));
  }
  if (group.kind == GroupKind::kHeads) {
    const device::HeadStepsParams p = *head_steps(group.members);
    std::int64_t heads = 0;
    for (std::int64_t t = 0; t < p.count; ++t) heads += p.tracks[t].heads;
    return to.add(Kernel::head_steps, {heads, rows_, device::kHeadThreads, device::kHeadStepsWords},
                  &p);
  }
  if (group.kind == GroupKind::kProducts) {
    device::IntegerProductParams p = *products(group.members);
    const StripLaunch strips = plan_product(p);
    return to.add(strips.kernel, strips.shape, &p);
  }
  if (const auto p = plan_residual_steps(row_operations(group.members), group.width)) {
    return to.add(Kernel::residual_steps,
                  {rows_, 1, device::kResidualThreads, device::kResidualWords}, &*p);
  }
  const RowStepPlan plan = *row_steps(group.members, group.width);
  to.add(Kernel::row_steps, plan.shape, &plan.params);
}

}  // namespace

FusedLaunches fuse(const LaunchList& launches, std::int64_t rows) {
  FusedLaunches fused = Fusion(launches, rows).run();
  fold_roundings(fused);
  join_outputs(fused);
  join_routes(fused);
  join_attention(fused);
  set_waits(fused.launches);
  return fused;
}

bool FusedLists::renew(Kept& kept, const LaunchList& launches) {
  const bool is_same = kept.identity == launches.identity();
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (is_same ? launches.change(i) <= kept.change : launches.has_equal_launch(kept.launches, i)) {
      continue;
    }
    const std::size_t place = kept.fused.places[i];
    if (place == SIZE_MAX || !have_equal_accesses(kept.launches, launches, i)) return false;
    kept.launches.replace(i, launches, i);
    if (!renew_launch(kept.fused.launches, place, launches, i)) return false;
  }
  return true;
}

const LaunchList& FusedLists::of(const LaunchList& launches, std::int64_t rows) {
  if (launches.size() < 2 || rows == 0) return launches;
  auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.rows == rows && kept.identity == launches.identity();
  });
  if (found == kept_.end()) {
    found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return kept.rows == rows && kept.launches.has_equal_kernels(launches);
    });
  }
  const bool is_new = found == kept_.end();
  if (is_new && kept_.size() < kMostKept) {
    found = kept_.emplace(kept_.end());
  } else if (is_new) {
    found = std::min_element(kept_.begin(), kept_.end(), [](const Kept& a, const Kept& b) {
      return a.last_used < b.last_used;
    });
  }
  found->last_used = ++uses_;
  if (is_new || !renew(*found, launches)) {
    found->launches = launches;
    found->rows = rows;
    found->fused = fuse(launches, rows);
  }
  found->identity = launches.identity();
  found->change = launches.last_change();
  return found->fused.launches;
}

}  // namespace kakeya::cuda
