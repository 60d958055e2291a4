// The emulator as a device: its memory cannot be touched but by kernels and copies.
#include "backend/emulated/emulated_driver.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/attention_of_many.h"
#include "backend/cuda/device/early_route.h"
#include "backend/cuda/device/few_experts.h"
#include "backend/cuda/device/head_steps.h"
#include "backend/cuda/device/host_exchange.h"
#include "backend/cuda/device/integer_tiles.h"
#include "backend/cuda/device/joined_attention.h"
#include "backend/cuda/device/largest.h"
#include "backend/cuda/device/many_pairs.h"
#include "backend/cuda/device/plain_outputs.h"
#include "backend/cuda/device/residual_steps.h"
#include "backend/cuda/device/restored_attention.h"
#include "backend/cuda/device/row_steps.h"
#include "backend/cuda/device/rows.h"
#include "backend/cuda/device/store.h"
#include "backend/cuda/device/tensor_attention.h"
#include "backend/cuda/device/tensor_products.h"
#include "backend/emulated/emulator.h"
#include "backend/emulated/guarded_space.h"
#include "base/status.h"

namespace kakeya::cuda {
namespace {

using guarded::GuardedSpace;

constexpr emulated::KernelBody kBodies[] = {
#define KAKEYA_KERNEL(name, params) \
  [](const void* parameters) { device::name(*static_cast<const device::params*>(parameters)); },
#define KAKEYA_EARLY(name, params)                                 \
  [](const void* parameters) {                                     \
    dev::start_early();                                            \
    device::name(*static_cast<const device::params*>(parameters)); \
  },
    KAKEYA_CUDA_KERNELS(KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_EARLY, KAKEYA_EARLY, KAKEYA_EARLY)
#undef KAKEYA_KERNEL
#undef KAKEYA_EARLY
};

// Memory in which allocations hold NaN until they are written. Copies that are begun are done as
// late as a card may do them: bytes that do not stay until then are not those that arrive.
class EmulatedSpace final : public MemorySpace, public emulated::DeviceMemory {
 public:
  EmulatedSpace(std::unique_ptr<GuardedSpace> pages, bool allows_host_memory)
      : pages_(std::move(pages)), allows_host_memory_(allows_host_memory) {}

  GuardedSpace& pages() { return *pages_; }
  std::string_view name() const override { return "cuda-emulated"; }
  std::byte* allocate(std::uint64_t bytes) override {
    std::byte* const memory = pages_->allocate(bytes);
    if (memory != nullptr) pages_->fill(DevicePointer(memory), std::byte{0xff}, bytes);
    return memory;
  }
  void release(std::byte* memory, std::uint64_t bytes) override {
    change();
    pages_->release(memory, bytes);
  }
  void begin_upload(std::span<const std::byte> from, DevicePointer<std::byte> to) {
    ++num_changes_;
    const std::lock_guard lock(mutex_);
    begun_.push_back([this, from, to] { pages_->upload(from, to); });
  }
  // Memory of the host that holds NaN at first, and that kernels reach as long as it is kept.
  std::shared_ptr<std::byte> pin(std::size_t bytes) {
    constexpr std::align_val_t kLine{64};
    std::shared_ptr<std::byte> memory(new (kLine) std::byte[bytes], [this](std::byte* pinned) {
      finish_copies();
      const std::lock_guard lock(mutex_);
      std::erase_if(pinned_, [&](const auto& piece) { return piece.data() == pinned; });
      operator delete[](pinned, kLine);
    });
    std::fill_n(memory.get(), bytes, std::byte{0xff});
    const std::lock_guard lock(mutex_);
    pinned_.emplace_back(memory.get(), bytes);
    return memory;
  }
  // Uploads, copies, fills and releases so far.
  std::uint64_t num_changes() const { return num_changes_; }
  void finish_copies() {
    const std::lock_guard lock(mutex_);
    for (const auto& copy : begun_) copy();
    begun_.clear();
  }
  void upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override {
    change();
    if (is_of_host(to.address())) return host().upload(from, to);
    pages_->upload(from, to);
  }
  void download(DevicePointer<const std::byte> from, std::span<std::byte> to) override {
    finish_copies();
    if (is_of_host(from.address())) return host().download(from, to);
    pages_->download(from, to);
  }
  void copy(DevicePointer<const std::byte> from,
            DevicePointer<std::byte> to,
            std::uint64_t bytes) override {
    change();
    if (is_of_host(from.address())) return host().copy(from, to, bytes);
    pages_->copy(from, to, bytes);
  }
  void fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) override {
    change();
    if (is_of_host(to.address())) return host().fill(to, value, bytes);
    pages_->fill(to, value, bytes);
  }

  emulated::Bounds bounds_of(const void* address) const override {
    std::span<const std::byte> piece = pages_->piece_of(address);
    if (piece.empty()) piece = pinned_piece(static_cast<const std::byte*>(address));
    const auto begin = reinterpret_cast<std::uintptr_t>(piece.data());
    if (!piece.empty()) return {begin, begin + piece.size()};
    return address != nullptr && is_of_host(address) ? emulated::Bounds{1, UINTPTR_MAX}
                                                     : emulated::Bounds{};
  }

 private:
  std::span<const std::byte> pinned_piece(const std::byte* address) const {
    const std::lock_guard lock(mutex_);
    for (const std::span<const std::byte> piece : pinned_) {
      if (address >= piece.data() && address < piece.data() + piece.size()) return piece;
    }
    return {};
  }
  bool is_of_host(const void* address) const {
    return allows_host_memory_ && !pages_->has_address(address);
  }

  void change() {
    ++num_changes_;
    finish_copies();
  }

  std::unique_ptr<GuardedSpace> pages_;
  const bool allows_host_memory_;
  std::atomic<std::uint64_t> num_changes_ = 0;
  mutable std::mutex mutex_;  // of what follows
  std::vector<std::function<void()>> begun_;
  std::vector<std::span<const std::byte>> pinned_;
};

class EmulatedDriver final : public Driver {
 public:
  EmulatedDriver(std::unique_ptr<GuardedSpace> pages, const EmulatorOptions& options)
      : space_(std::move(pages), options.allows_host_memory),
        takes_lists_(!options.allows_host_memory && !options.runs_one_by_one),
        emulator_(space_, options.seed) {
    emulator_.count_reads(options.counted);
  }

  std::string_view name() const override { return "cuda-emulated"; }
  MemorySpace& memory() override { return space_; }
  bool takes_lists() const override { return takes_lists_; }
  Result<std::span<std::byte>> staging() override {
    const std::lock_guard lock(mutex_);
    staging_.resize(kStagingBytes);
    return staging_;
  }
  Result<std::shared_ptr<std::byte>> pin(std::size_t bytes) override { return space_.pin(bytes); }
  void begin_upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override {
    space_.begin_upload(from, to);
  }
  std::uint64_t num_changes() const override { return space_.num_changes(); }

  Status launch(const LaunchList& launches) override {
    const std::lock_guard lock(mutex_);
    space_.finish_copies();
    const GuardedSpace::Access access(space_.pages());
    emulator_.begin_list();
    for (std::size_t i = 0; i < launches.size(); ++i) {
      const Kernel kernel = launches.kernel(i);
      KAKEYA_TRY(emulator_.run(kKernelNames[static_cast<std::size_t>(kernel)],
                               emulated::kernel_body(kernel), launches.shape(i),
                               launches.parameters(i)));
    }
    return {};
  }
  Status synchronize() override {
    space_.finish_copies();
    return {};
  }
  Status await(std::int64_t& told, std::int64_t number) override {
    space_.finish_copies();
    if (told == number) return {};
    return error(StatusCode::kInternal, "a pass ended without telling the host");
  }

 private:
  EmulatedSpace space_;
  const bool takes_lists_;
  std::mutex mutex_;  // of what follows
  std::vector<std::byte> staging_;
  emulated::Emulator emulator_;
};

}  // namespace

Result<std::unique_ptr<Driver>> create_emulated_driver(const EmulatorOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(auto pages, GuardedSpace::create());
  return std::make_unique<EmulatedDriver>(std::move(pages), options);
}

Result<std::unique_ptr<Backend>> create_emulated_backend(const EmulatorOptions& options,
                                                         int threads) {
  KAKEYA_ASSIGN_OR_RETURN(auto driver, create_emulated_driver(options));
  return create_backend_on(std::move(driver), threads);
}

}  // namespace kakeya::cuda

namespace kakeya::emulated {

KernelBody kernel_body(cuda::Kernel kernel) {
  return cuda::kBodies[static_cast<std::size_t>(kernel)];
}

Status Emulator::run(std::string_view name,
                     KernelBody body,
                     const cuda::LaunchShape& shape,
                     const void* parameters) {
  const auto refuse = [&](std::string_view what, std::int64_t got, std::int64_t most) {
    return error(StatusCode::kInternal, "kernel {}: {} {}, at most {} are possible", name, got,
                 what, most);
  };
  if (shape.blocks_x > cuda::Driver::kMostBlocksX) {
    return refuse("blocks a row", shape.blocks_x, cuda::Driver::kMostBlocksX);
  }
  if (shape.blocks_y > cuda::Driver::kMostBlocksY) {
    return refuse("rows of blocks", shape.blocks_y, cuda::Driver::kMostBlocksY);
  }
  if (shape.threads > cuda::Driver::kMostThreads || shape.threads % kWarp != 0) {
    return refuse("threads, which are to be whole warps", shape.threads,
                  cuda::Driver::kMostThreads);
  }
  const std::int64_t shared = std::int64_t{4} * shape.shared_words;
  if (shared > kMostSharedBytes) return refuse("bytes of shared memory", shared, kMostSharedBytes);
  const auto blocks = static_cast<std::uint64_t>(shape.blocks_x * shape.blocks_y);
  if (blocks == 0) return {};
  // All of them, in steps that have no factor in common with their number.
  std::uint64_t stride = random_.below(blocks) + 1;
  while (std::gcd(stride, blocks) != 1) ++stride;
  std::uint64_t block = random_.below(blocks);
  const Block::Work work = {body, parameters, shape.threads, shape.shared_words};
  block_.begin_launch();
  for (std::uint64_t i = 0; i < blocks; ++i, block = (block + stride) % blocks) {
    const auto x = static_cast<std::int64_t>(block) % shape.blocks_x;
    const auto y = static_cast<std::int64_t>(block) / shape.blocks_x;
    const std::string failure = block_.run(work, x, y, random_);
    if (!failure.empty()) {
      return error(StatusCode::kInternal, "kernel {}, block ({}, {}), {}", name, x, y, failure);
    }
  }
  if (const std::string wrong = block_.end_launch(); !wrong.empty()) {
    return error(StatusCode::kInternal, "kernel {}: {}", name, wrong);
  }
  return {};
}

}  // namespace kakeya::emulated
