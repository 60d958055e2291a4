#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>

#include "backend/cuda/driver.h"

namespace kakeya::cuda {
namespace {

constexpr std::size_t kMostParameterBytes =
    *std::max_element(std::begin(kParameterBytes), std::end(kParameterBytes));

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

std::uint64_t Identity::next() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

void LaunchList::add(Kernel kernel, const LaunchShape& shape, const void* parameters) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0) return;
  // Parameters begin at multiples of what the largest of their members needs.
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  const std::size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
  const auto before = static_cast<std::uint32_t>(launches_.size());
  launches_.push_back({kernel, shape, begin, static_cast<std::uint32_t>(waits_.size()), 0, 0});
  identity_ = {};
  if (before > 0) {
    waits_.push_back(before - 1);
    launches_.back().num_waits = 1;
  }
  bytes_.resize(begin + parameter_bytes(kernel));
  std::memcpy(bytes_.data() + begin, parameters, parameter_bytes(kernel));
  kClearPadding[static_cast<std::size_t>(kernel)](bytes_.data() + begin);
}

void LaunchList::wait_for(std::span<const std::uint32_t> launches) {
  identity_ = {};
  Launch& last = launches_.back();
  waits_.resize(last.first_wait);
  waits_.insert(waits_.end(), launches.begin(), launches.end());
  last.num_waits = static_cast<std::uint32_t>(launches.size());
}

void LaunchList::clear() {
  cut(0);
}

void LaunchList::cut(std::size_t size) {
  if (size == launches_.size()) return;
  identity_ = {};
  waits_.resize(launches_[size].first_wait);
  bytes_.resize(launches_[size].parameters);
  launches_.resize(size);
}

bool LaunchList::has_launch(std::size_t i,
                            Kernel kernel,
                            const LaunchShape& shape,
                            const void* parameters) const {
  const std::size_t size = parameter_bytes(kernel);
  const void* const own = this->parameters(i);
  if (this->kernel(i) != kernel || this->shape(i) != shape) return false;
  if (std::memcmp(own, parameters, size) == 0) return true;
  // Bytes between members may differ.
  alignas(std::max_align_t) std::array<std::byte, kMostParameterBytes> cleared;
  std::memcpy(cleared.data(), parameters, size);
  kClearPadding[static_cast<std::size_t>(kernel)](cleared.data());
  return std::memcmp(own, cleared.data(), size) == 0;
}

bool LaunchList::begins_with(Kernel kernel,
                             const LaunchShape& shape,
                             const void* parameters) const {
  const std::size_t first = size() > 0 && this->kernel(0) == Kernel::take_inputs ? 1 : 0;
  return first < size() && has_launch(first, kernel, shape, parameters);
}

void LaunchList::record(Kernel kernel, const LaunchShape& shape, const void* parameters) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0) return;
  const std::size_t i = recorded_++;
  if (i < size() && has_launch(i, kernel, shape, parameters)) return;
  if (i < size() && this->kernel(i) == kernel) return replace(i, shape, parameters);
  cut(i);
  add(kernel, shape, parameters);
}

void LaunchList::end_again() {
  cut(recorded_);
}

bool LaunchList::has_equal_kernels(const LaunchList& other) const {
  if (size() != other.size() || waits_ != other.waits_) return false;
  for (std::size_t i = 0; i < size(); ++i) {
    if (kernel(i) != other.kernel(i)) return false;
    if (launches_[i].num_waits != other.launches_[i].num_waits) return false;
  }
  return true;
}

bool LaunchList::has_equal_shapes(const LaunchList& other) const {
  return std::ranges::equal(launches_, other.launches_, {}, &Launch::shape, &Launch::shape);
}

bool LaunchList::has_equal_launch(const LaunchList& other, std::size_t i) const {
  return shape(i) == other.shape(i) &&
         std::memcmp(parameters(i), other.parameters(i), parameter_bytes(kernel(i))) == 0;
}

void LaunchList::replace(std::size_t i, const LaunchList& other, std::size_t of_other) {
  replace(i, other.shape(of_other), other.parameters(of_other));
}

void LaunchList::replace(std::size_t i, const LaunchShape& shape, const void* parameters) {
  std::byte* const own = bytes_.data() + launches_[i].parameters;
  launches_[i].shape = shape;
  launches_[i].change = ++last_change_;
  std::memcpy(own, parameters, parameter_bytes(kernel(i)));
  kClearPadding[static_cast<std::size_t>(kernel(i))](own);
}

}  // namespace kakeya::cuda
