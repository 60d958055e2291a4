#include "backend/cuda/cuda_driver.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <string_view>
#include <utility>

#include "backend/cuda/card_stream.h"
#include "backend/cuda/launch_graphs.h"
#include "base/status.h"

namespace kakeya::cuda {
namespace {

using libcuda::Code;
using libcuda::Table;

// The least compute capability, major, that the kernels run on.
constexpr int kLeastCapability = 8;
// From this one on kernels can wait for those before them.
constexpr int kEarlyStartCapability = 9;
// A block has these without asking.
constexpr std::uint32_t kUsualSharedBytes = 48U << 10;
constexpr std::size_t kNumKernels = std::size(kKernelNames);

struct KernelHandle {
  libcuda::Function* function = nullptr;
  std::uint32_t shared_bytes = kUsualSharedBytes;  // that a block may have
};

// More than a card takes stays more than it takes.
unsigned to_unsigned(std::int64_t blocks) {
  return static_cast<unsigned>(std::min<std::int64_t>(blocks, UINT_MAX));
}

class CudaDriver final : public Driver {
 public:
  CudaDriver(std::unique_ptr<CardStream> stream, const CardLaunches& card)
      : stream_(std::move(stream)),
        space_(*stream_),
        card_(card),
        graphs_(stream_->table(), card_) {}
  ~CudaDriver() override {
    const CardStream::Turn turn(*stream_);
    stream_->wait();
    graphs_.clear();
    if (!staging_.empty()) stream_->table().release_host(staging_.data());
    if (module_ != nullptr) stream_->table().unload_module(module_);
  }

  std::string_view name() const override { return "cuda"; }
  MemorySpace& memory() override { return space_; }
  bool takes_lists() const override { return true; }
  const CardSpace& space() const { return space_; }
  Result<std::span<std::byte>> staging() override;
  Result<std::shared_ptr<std::byte>> pin(std::size_t bytes) override;
  void begin_upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override {
    space_.begin_upload(from, to);
  }
  std::uint64_t num_changes() const override { return space_.num_changes(); }

  // Errors: kUnavailable.
  Status load(const DeviceImage& image);
  Status launch(const LaunchList& launches) override;
  Status synchronize() override {
    const CardStream::Turn turn(*stream_);
    stream_->wait();
    return stream_->failure();
  }
  Status await(std::int64_t& told, std::int64_t number) override;

 private:
  Status launch_one(Kernel kernel, const LaunchShape& shape, const void* parameters);
  // Pinned memory. Errors: kResourceExhausted, which says `what` for.
  Result<void*> allocate_host(std::size_t bytes, std::string_view what);
  // Lets blocks of the kernel have so much shared memory.
  Code allow(KernelHandle& kernel, std::uint32_t shared_bytes);

  const std::unique_ptr<CardStream> stream_;
  CardSpace space_;
  std::span<std::byte> staging_;  // pinned
  libcuda::Module* module_ = nullptr;
  std::array<KernelHandle, kNumKernels> kernels_;
  const CardLaunches card_;
  LaunchGraphs graphs_;
};

Status CudaDriver::load(const DeviceImage& image) {
  const CardStream::Turn turn(*stream_);
  const Table& table = stream_->table();
  const auto refused = [&](std::string_view what, Code code) {
    return error(StatusCode::kUnavailable, "{} does not load {}: {}", stream_->name(), what,
                 libcuda::describe(table, code));
  };
  Code code = table.load_module(&module_, image.bytes.data());
  if (code != libcuda::kSuccess) {
    module_ = nullptr;
    return refused("the kernels", code);
  }
  for (std::size_t i = 0; i < kNumKernels; ++i) {
    const std::string symbol = fmt::format("kakeya_{}", kKernelNames[i]);
    code = table.get_function(&kernels_[i].function, module_, symbol.c_str());
    if (code != libcuda::kSuccess) return refused(symbol, code);
    // A multiprocessor that must first divide its memory anew takes no block beside those of other
    // kernels. Cards may have their own mind.
    table.set_attribute(kernels_[i].function, libcuda::kSharedCarveout, libcuda::kMostCarveout);
  }
  std::array<libcuda::Function*, kNumKernels> functions;
  for (std::size_t i = 0; i < kNumKernels; ++i) functions[i] = kernels_[i].function;
  graphs_.set_functions(functions);
  return {};
}

Result<void*> CudaDriver::allocate_host(std::size_t bytes, std::string_view what) {
  KAKEYA_TRY(stream_->failure());
  void* memory = nullptr;
  const Code code = stream_->table().allocate_host(&memory, bytes);
  if (code == libcuda::kSuccess) return memory;
  return error(StatusCode::kResourceExhausted, "{} gets no {} bytes of pinned memory to {}: {}",
               stream_->name(), bytes, what, libcuda::describe(stream_->table(), code));
}

Result<std::span<std::byte>> CudaDriver::staging() {
  const CardStream::Turn turn(*stream_);
  KAKEYA_TRY(stream_->failure());
  if (!staging_.empty()) return staging_;
  KAKEYA_ASSIGN_OR_RETURN(void* memory, allocate_host(kStagingBytes, "load weights through"));
  staging_ = {static_cast<std::byte*>(memory), kStagingBytes};
  return staging_;
}

Result<std::shared_ptr<std::byte>> CudaDriver::pin(std::size_t bytes) {
  const CardStream::Turn turn(*stream_);
  KAKEYA_ASSIGN_OR_RETURN(void* memory, allocate_host(bytes, "run passes"));
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [this](std::byte* pinned) {
    const CardStream::Turn releasing(*stream_);
    stream_->wait();
    stream_->table().release_host(pinned);
  });
}

// The library is asked now and then, for a card that fails tells nobody.
Status CudaDriver::await(std::int64_t& told, std::int64_t number) {
  constexpr std::chrono::microseconds kBetweenQuestions(50);
  const std::atomic_ref<std::int64_t> now(told);
  bool is_done = false;
  while (!is_done) {
    const auto asks = std::chrono::steady_clock::now() + kBetweenQuestions;
    do {
      if (now.load(std::memory_order_acquire) == number) return {};
    } while (std::chrono::steady_clock::now() < asks);
    const CardStream::Turn turn(*stream_);
    is_done = stream_->is_done();
    KAKEYA_TRY(stream_->failure());
  }
  if (now.load(std::memory_order_acquire) == number) return {};
  return error(StatusCode::kInternal, "{}: a pass ended without telling the host", stream_->name());
}

Code CudaDriver::allow(KernelHandle& kernel, std::uint32_t shared_bytes) {
  if (shared_bytes <= kernel.shared_bytes) return libcuda::kSuccess;
  const Code code = stream_->table().set_attribute(
      kernel.function, libcuda::kMostDynamicSharedBytes, static_cast<int>(shared_bytes));
  if (code == libcuda::kSuccess) kernel.shared_bytes = shared_bytes;
  return code;
}

Status CudaDriver::launch(const LaunchList& launches) {
  const CardStream::Turn turn(*stream_);
  if (!stream_->works()) return stream_->failure();
  bool is_allowed = true;
  for (std::size_t i = 0; i < launches.size() && is_allowed; ++i) {
    is_allowed = allow(kernels_[static_cast<std::size_t>(launches.kernel(i))],
                       card_.shared_bytes(launches.shape(i))) == libcuda::kSuccess;
  }
  if (is_allowed && graphs_.launch(launches, stream_->stream())) {
    stream_->set_last_kernel(
        kKernelNames[static_cast<std::size_t>(launches.kernel(launches.size() - 1))]);
    return {};
  }
  for (std::size_t i = 0; i < launches.size(); ++i) {
    KAKEYA_TRY(launch_one(launches.kernel(i), launches.shape(i), launches.parameters(i)));
  }
  return {};
}

Status CudaDriver::launch_one(Kernel kernel, const LaunchShape& shape, const void* parameters) {
  const auto index = static_cast<std::size_t>(kernel);
  const std::uint32_t shared_bytes = card_.shared_bytes(shape);
  Code code = allow(kernels_[index], shared_bytes);
  if (code == libcuda::kSuccess) {
    // The library copies what the kernel is handed before it returns.
    void* arguments[] = {const_cast<void*>(parameters)};
    code = stream_->table().launch(kernels_[index].function, to_unsigned(shape.blocks_x),
                                   to_unsigned(shape.blocks_y), 1,
                                   static_cast<unsigned>(shape.threads), 1, 1, shared_bytes,
                                   stream_->stream(), arguments, nullptr);
  }
  if (code == libcuda::kSuccess) {
    stream_->set_last_kernel(kKernelNames[index]);
    return {};
  }
  // It may be the failure of a kernel before it.
  if (!stream_->wait()) return stream_->failure();
  return error(StatusCode::kInternal, "{} refuses kernel {}: {}", stream_->name(),
               kKernelNames[index], libcuda::describe(stream_->table(), code));
}

struct FoundCard {
  Table table;
  int device = 0;
  Card card;
  CardLaunches launches;
};

Status check_driver(const Table& table, int least) {
  int version = 0;
  if (table.driver_version(&version) == libcuda::kSuccess && version >= least) return {};
  return error(StatusCode::kFailedPrecondition,
               "the NVIDIA driver is too old: it knows CUDA {}, expected {} or later",
               libcuda::version_text(version), libcuda::version_text(least));
}

CardLaunches launches_of(const Table& table, int device, const Card& card) {
  // Bytes that the system keeps of each block, and the step in which a block gets shared memory.
  constexpr std::uint32_t kKeptBytes = 1024;
  constexpr std::uint32_t kStepBytes = 128;
  CardLaunches launches = {.starts_early = card.capability_major >= kEarlyStartCapability};
  int bytes = 0;
  if (table.device_attribute(&bytes, libcuda::kSharedBytes, device) == libcuda::kSuccess &&
      bytes > 2 * static_cast<int>(kKeptBytes)) {
    launches.spread_bytes = static_cast<std::uint32_t>(bytes) / 2 - kKeptBytes + kStepBytes;
  }
  return launches;
}

// Errors: of those of create_cuda_driver() all before there is a context.
Result<FoundCard> find_card(const CardOptions& options) {
  if (options.image.bytes.empty()) {
    return error(StatusCode::kUnimplemented,
                 "this build was made without nvcc and has no code for cards");
  }
  FoundCard found;
  KAKEYA_ASSIGN_OR_RETURN(found.table, libcuda::open(options.library));
  const Table& table = found.table;
  KAKEYA_TRY(check_driver(table, options.image.least_driver));
  int count = 0;
  if (table.device_count(&count) != libcuda::kSuccess || options.device >= count) {
    return error(count == 0 ? StatusCode::kFailedPrecondition : StatusCode::kInvalidArgument,
                 "expected a card with number {}, but the NVIDIA driver shows {}, counted from 0",
                 options.device, count);
  }
  std::array<char, 256> name = {};
  Card& card = found.card;
  int& device = found.device;
  for (const Code code :
       {table.get_device(&device, options.device),
        table.device_name(name.data(), static_cast<int>(name.size()) - 1, device),
        table.device_attribute(&card.capability_major, libcuda::kCapabilityMajor, device),
        table.device_attribute(&card.capability_minor, libcuda::kCapabilityMinor, device)}) {
    if (code == libcuda::kSuccess) continue;
    return error(StatusCode::kUnavailable, "the NVIDIA driver says nothing of card {}: {}",
                 options.device, libcuda::describe(table, code));
  }
  card.name = name.data();
  if (card.capability_major >= kLeastCapability) {
    found.launches = launches_of(table, device, card);
    return found;
  }
  return error(StatusCode::kFailedPrecondition,
               "card {}, {}, has compute capability {}.{}, expected {}.0 or later", options.device,
               card.name, card.capability_major, card.capability_minor, kLeastCapability);
}

struct OpenCard {
  Card card;
  std::unique_ptr<CudaDriver> driver;
};

Result<OpenCard> open_card(const CardOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(FoundCard found, find_card(options));
  KAKEYA_ASSIGN_OR_RETURN(auto stream, CardStream::open(found.table, found.device,
                                                        fmt::format("cuda:{}", options.device)));
  OpenCard open = {std::move(found.card),
                   std::make_unique<CudaDriver>(std::move(stream), found.launches)};
  KAKEYA_TRY(open.driver->load(options.image));
  return open;
}

}  // namespace

Result<std::unique_ptr<Driver>> create_cuda_driver(const CardOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(OpenCard open, open_card(options));
  return std::move(open.driver);
}

Result<Card> examine_card(const CardOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(OpenCard open, open_card(options));
  if (const auto amount = open.driver->space().amount()) {
    open.card.memory_bytes = amount->all;
    open.card.free_bytes = amount->free;
  }
  return std::move(open.card);
}

}  // namespace kakeya::cuda
