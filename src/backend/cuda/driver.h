// The driver of a device for the backend: memory, and kernels one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/device/kernel_list.h"
#include "backend/cuda/device/params.h"
#include "base/memory_space.h"
#include "kakeya/status.h"

namespace kakeya::cuda {

enum class Kernel : std::uint8_t {
#define KAKEYA_KERNEL(name, params) name,
  KAKEYA_CUDA_KERNELS(KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL)
#undef KAKEYA_KERNEL
};

inline constexpr std::string_view kKernelNames[] = {
#define KAKEYA_KERNEL(name, params) #name,
    KAKEYA_CUDA_KERNELS(KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL)
#undef KAKEYA_KERNEL
};

// The bytes of each kernel's parameters.
inline constexpr std::size_t kParameterBytes[] = {
#define KAKEYA_KERNEL(name, params) sizeof(device::params),
    KAKEYA_CUDA_KERNELS(KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL, KAKEYA_KERNEL)
#undef KAKEYA_KERNEL
};

struct LaunchShape {
  std::int64_t blocks_x = 1;
  std::int64_t blocks_y = 1;
  int threads = 32;  // of a block, whole warps
  std::uint32_t shared_words = 0;
  // Each block is to have a multiprocessor to itself, but for blocks of other launches. Left to
  // themselves cards put two of a launch on one while others stand idle.
  bool is_spread = false;

  bool operator==(const LaunchShape&) const = default;
};

// A number that no other object has, nor had; copies have others.
class Identity {
 public:
  Identity() : value_(next()) {}
  Identity(const Identity&) : Identity() {}
  Identity& operator=(const Identity&) {
    value_ = next();
    return *this;
  }
  ~Identity() = default;
  std::uint64_t value() const { return value_; }

 private:
  static std::uint64_t next();

  std::uint64_t value_;
};

// Kernels that are to run one after the other, with copies of what they are handed. Some may say
// that they need not wait for all before them.
class LaunchList {
 public:
  // A launch without blocks is left out.
  void add(Kernel kernel, const LaunchShape& shape, const void* parameters);
  void clear();
  // Begins a list that will mostly be what this one is: record() changes what differs, and what
  // was not recorded again by end_again() goes. Nobody says waits of such a list.
  void begin_again() { recorded_ = 0; }
  void record(Kernel kernel, const LaunchShape& shape, const void* parameters);
  void end_again();
  // The launches that were recorded again so far.
  std::size_t num_recorded() const { return recorded_; }
  // The first `count` launches are as if they had been recorded again.
  void keep(std::size_t count) { recorded_ = count; }
  // True if this is the first launch, behind one that takes inputs.
  bool begins_with(Kernel kernel, const LaunchShape& shape, const void* parameters) const;

  // Another number means other kernels or waits. With the same one the launches differ whose
  // change() is later than last_change() was.
  std::uint64_t identity() const { return identity_.value(); }
  std::uint64_t last_change() const { return last_change_; }
  std::uint64_t change(std::size_t i) const { return launches_[i].change; }

  std::size_t size() const { return launches_.size(); }
  Kernel kernel(std::size_t i) const { return launches_[i].kernel; }
  // Says which launches before it the last one is to wait for, some directly, others because those
  // do. Without that it waits for the one before it.
  void wait_for(std::span<const std::uint32_t> launches);
  // The launches that launch i waits for directly; the first one waits for none.
  std::span<const std::uint32_t> waits_for(std::size_t i) const {
    const Launch& launch = launches_[i];
    return std::span(waits_).subspan(launch.first_wait, launch.num_waits);
  }
  const LaunchShape& shape(std::size_t i) const { return launches_[i].shape; }
  const void* parameters(std::size_t i) const { return bytes_.data() + launches_[i].parameters; }
  // True if the same kernels wait for the same ones.
  bool has_equal_kernels(const LaunchList& other) const;
  bool has_equal_shapes(const LaunchList& other) const;
  // True if launch i has the same parameters in both lists, which have equal kernels.
  bool has_equal_launch(const LaunchList& other, std::size_t i) const;
  // Makes launch i that of another list, which is of the same kernel.
  void replace(std::size_t i, const LaunchList& other, std::size_t of_other);
  void replace(std::size_t i, const LaunchShape& shape, const void* parameters);

 private:
  struct Launch {
    Kernel kernel;
    LaunchShape shape;
    std::size_t parameters;  // where they begin
    std::uint32_t first_wait = 0;
    std::uint32_t num_waits = 0;
    std::uint64_t change = 0;
  };
  bool has_launch(std::size_t i,
                  Kernel kernel,
                  const LaunchShape& shape,
                  const void* parameters) const;
  void cut(std::size_t size);

  Identity identity_;
  std::uint64_t last_change_ = 0;
  std::size_t recorded_ = 0;
  std::vector<Launch> launches_;
  std::vector<std::byte> bytes_;
  std::vector<std::uint32_t> waits_;
};

// Thread-safe.
class Driver {
 public:
  // The limits of cards with compute capability 8.0; later ones have no lower ones.
  static constexpr std::int64_t kMostBlocksX = (std::int64_t{1} << 31) - 1;
  static constexpr std::int64_t kMostBlocksY = 65535;
  static constexpr int kMostThreads = 1024;
  static constexpr std::size_t kStagingBytes = std::size_t{32} << 20;

  virtual ~Driver() = default;
  // "cuda", "cuda-emulated": for reports.
  virtual std::string_view name() const = 0;
  virtual MemorySpace& memory() = 0;
  // True if launches of a pass may wait until there are many; else each is to run at once.
  virtual bool takes_lists() const = 0;
  // kStagingBytes of the host's memory, from which copies are fast: the same ones in each call, for
  // one user at a time. Errors: kResourceExhausted; those of synchronize().
  virtual Result<std::span<std::byte>> staging() = 0;
  // Memory of the host, in lines of 64 bytes, that kernels reach, and copies for which nobody
  // waits. It must go before the driver does; its last owner then waits for them. Errors: those of
  // staging().
  virtual Result<std::shared_ptr<std::byte>> pin(std::size_t bytes) = 0;
  // Copies `from`, a part of staging() or of pinned memory, which must stay as it is until
  // synchronize(). A failure is what that returns.
  virtual void begin_upload(std::span<const std::byte> from, DevicePointer<std::byte> to) = 0;
  // How often anything but a kernel changed memory of the device so far.
  virtual std::uint64_t num_changes() const = 0;
  // Runs the kernels after all before them, and before copies that follow. Errors: kInternal, with
  // the kernel that was refused, behind which none runs; those of synchronize().
  virtual Status launch(const LaunchList& launches) = 0;
  // Waits for all launches and copies. Errors: what a launch or a copy came to, kUnavailable if the
  // device does not work any more.
  virtual Status synchronize() = 0;
  // Waits for all that was begun before a kernel tell_host that writes `number` to `told`, of
  // pinned memory, and is the last kernel. Errors: those of synchronize(); kInternal if it does
  // not.
  virtual Status await(std::int64_t& told, std::int64_t number) = 0;
};

}  // namespace kakeya::cuda
