#include <cstring>

#include "backend/cuda/driver.h"

namespace kakeya::cuda {
namespace {

std::size_t parameter_bytes(Kernel kernel) {
  return kParameterBytes[static_cast<std::size_t>(kernel)];
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define KAKEYA_CLEARS_PADDING 1
#endif
#endif

// Gives the bytes between members one value, for they are compared: what was on the stack there
// would make launches differ that do not. Without the compiler's help they may, which costs time.
template <typename Params>
void clear_padding([[maybe_unused]] std::byte* bytes) {
#ifdef KAKEYA_CLEARS_PADDING
  __builtin_clear_padding(reinterpret_cast<Params*>(bytes));
#endif
}

constexpr void (*kClearPadding[])(std::byte* bytes) = {
#define KAKEYA_KERNEL(name, params) clear_padding<device::params>,
    KAKEYA_CUDA_KERNELS(KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL)
#undef KAKEYA_KERNEL
};

}  // namespace

void LaunchList::add(Kernel kernel, const LaunchShape& shape, const void* parameters) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0) return;
  // Parameters begin at multiples of what the largest of their members needs.
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  const std::size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
  const auto before = static_cast<std::uint32_t>(launches_.size());
  launches_.push_back({kernel, shape, begin, static_cast<std::uint32_t>(waits_.size()), 0});
  if (before > 0) {
    waits_.push_back(before - 1);
    launches_.back().num_waits = 1;
  }
  bytes_.resize(begin + parameter_bytes(kernel));
  std::memcpy(bytes_.data() + begin, parameters, parameter_bytes(kernel));
  kClearPadding[static_cast<std::size_t>(kernel)](bytes_.data() + begin);
}

void LaunchList::wait_for(std::span<const std::uint32_t> launches) {
  Launch& last = launches_.back();
  waits_.resize(last.first_wait);
  waits_.insert(waits_.end(), launches.begin(), launches.end());
  last.num_waits = static_cast<std::uint32_t>(launches.size());
}

void LaunchList::clear() {
  launches_.clear();
  waits_.clear();
  bytes_.clear();
}

bool LaunchList::has_equal_kernels(const LaunchList& other) const {
  if (size() != other.size() || waits_ != other.waits_) return false;
  for (std::size_t i = 0; i < size(); ++i) {
    if (kernel(i) != other.kernel(i)) return false;
    if (launches_[i].num_waits != other.launches_[i].num_waits) return false;
  }
  return true;
}

bool LaunchList::has_equal_launch(const LaunchList& other, std::size_t i) const {
  return shape(i) == other.shape(i) &&
         std::memcmp(parameters(i), other.parameters(i), parameter_bytes(kernel(i))) == 0;
}

void LaunchList::replace(std::size_t i, const LaunchList& other, std::size_t of_other) {
  replace(i, other.shape(of_other), other.parameters(of_other));
}

void LaunchList::replace(std::size_t i, const LaunchShape& shape, const void* parameters) {
  launches_[i].shape = shape;
  std::memcpy(bytes_.data() + launches_[i].parameters, parameters, parameter_bytes(kernel(i)));
}

}  // namespace kakeya::cuda
