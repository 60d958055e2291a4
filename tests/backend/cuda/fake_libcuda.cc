// Work is put off until somebody waits for it, as a card may do: what is uploaded is read then,
// and so it shows whether the caller keeps it that long.
#include "backend/cuda/fake_libcuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <sstream>
#include <utility>

#include "backend/fake_library.h"

namespace kakeya::cuda::fake {
namespace {

struct KnownError {
  Code code;
  const char* name;
  const char* text;
};
constexpr KnownError kErrors[] = {
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
};

template <typename Thing>
bool is_there(const std::array<Handle, 8>& handles, const Thing* thing) {
  return std::any_of(handles.begin(), handles.end(), [&](const Handle& handle) {
    return handle.is_there && &handle == reinterpret_cast<const Handle*>(thing);
  });
}

// One that is free; null if there are too many.
Handle* make(std::array<Handle, 8>& handles) {
  for (Handle& handle : handles) {
    if (handle.is_there) continue;
    handle.is_there = true;
    ++library().record.objects;
    return &handle;
  }
  return nullptr;
}

Code run_kernel(const KernelHandle& kernel,
                const LaunchShape& shape,
                const std::vector<std::byte>& parameters,
                bool faults) {
  if (faults) return kIllegalAddress;
  Library& lib = library();
  const GuardedSpace::Access access(lib.memory.pages());
  const Status ran =
      lib.emulator.run(kKernelNames[static_cast<std::size_t>(kernel.kernel)],
                       emulated::kernel_body(kernel.kernel), shape, parameters.data());
  if (ran) return kSuccess;
  std::snprintf(lib.record.kernel_failure, sizeof(lib.record.kernel_failure), "%s",
                ran.error().message().c_str());
  return kIllegalAddress;
}

}  // namespace

Settings Settings::read() {
  Settings settings;
  const std::pair<const char*, std::int64_t*> names[] = {
      {"devices", &settings.devices},
      {"driver", &settings.driver},
      {"capability", &settings.capability},
      {"memory", &settings.memory},
      {"fail_allocation", &settings.fail_allocation},
      {"fail_launch", &settings.fail_launch},
      {"fault_launch", &settings.fault_launch},
      {"eager", &settings.eager}};
  const char* const text = std::getenv(kSettings);
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const auto* const found =
        std::find_if(std::begin(names), std::end(names),
                     [&](const auto& name) { return word.substr(0, equals) == name.first; });
    if (equals == std::string::npos || found == std::end(names)) {
      std::fprintf(stderr, "%s: unknown word %s\n", kSettings, word.c_str());
      std::abort();
    }
    *found->second = std::stoll(word.substr(equals + 1));
  }
  return settings;
}

Library& library() {
  static Library made;
  return made;
}

std::vector<libcuda::Context*>& contexts() {
  thread_local std::vector<libcuda::Context*> pushed;
  return pushed;
}

bool is_stream(const libcuda::Stream* stream) {
  return is_there(library().streams, stream);
}

std::vector<std::byte> handed_to(const KernelHandle& kernel, void** parameters) {
  const auto* const from = static_cast<const std::byte*>(parameters[0]);
  return {from, from + kParameterBytes[static_cast<std::size_t>(kernel.kernel)]};
}

Code put_kernel_off(const libcuda::KernelNode& what, std::vector<std::byte> handed) {
  Library& lib = library();
  ++lib.record.launches;
  const std::int64_t number = ++lib.tried_launches;
  if (number == lib.settings.fail_launch) return kOutOfResources;
  const KernelHandle kernel = *reinterpret_cast<KernelHandle*>(what.function);
  if (what.blocks_x == 0 || what.blocks_y == 0 || what.blocks_x > Driver::kMostBlocksX ||
      what.blocks_y > Driver::kMostBlocksY || what.threads_x > Driver::kMostThreads) {
    return lib.misuse(kInvalidValue, "a launch of sizes that no card runs");
  }
  if (what.blocks_z != 1 || what.threads_y != 1 || what.threads_z != 1 || what.extra != nullptr) {
    return lib.misuse(kInvalidValue, "a launch that is not one of ours");
  }
  auto& most = library().record.most_shared_bytes;
  most = std::max(most, std::int64_t{what.shared_bytes});
  if (what.shared_bytes > static_cast<unsigned>(kernel.shared_bytes)) {
    return lib.misuse(kInvalidValue, "more shared memory than was asked for before");
  }
  const LaunchShape shape = {what.blocks_x, what.blocks_y, static_cast<int>(what.threads_x),
                             what.shared_bytes / 4};
  lib.work.emplace_back(
      [kernel, shape, faults = number == lib.settings.fault_launch, handed = std::move(handed)] {
        return run_kernel(kernel, shape, handed, faults);
      });
  if (lib.settings.eager != 0) lib.run_all();
  return kSuccess;
}

}  // namespace kakeya::cuda::fake

using namespace kakeya;              // NOLINT
using namespace kakeya::cuda;        // NOLINT
using namespace kakeya::cuda::fake;  // NOLINT
using libcuda::Address;
using libcuda::Code;

extern "C" {

Record* kakeya_fake_cuda_record() {
  return &library().record;
}

Code cuInit(unsigned flags) {
  Library& lib = library();
  const std::lock_guard<std::mutex> lock(lib.mutex);
  lib.settings = Settings::read();
  lib.tried_allocations = 0;
  lib.tried_launches = 0;
  if (flags != 0) return kInvalidValue;
  if (lib.settings.devices == 0) return kNoDevice;
  lib.started = true;
  return kSuccess;
}

Code cuDriverGetVersion(int* version) {
  *version = static_cast<int>(library().settings.driver);
  return kSuccess;
}

Code cuGetErrorName(Code code, const char** name) {
  for (const KnownError& known : kErrors) {
    if (known.code != code) continue;
    *name = known.name;
    return kSuccess;
  }
  return kInvalidValue;
}

Code cuGetErrorString(Code code, const char** text) {
  for (const KnownError& known : kErrors) {
    if (known.code != code) continue;
    *text = known.text;
    return kSuccess;
  }
  return kInvalidValue;
}

Code cuDeviceGetCount(int* count) {
  if (!library().started) return kNotInitialized;
  *count = static_cast<int>(library().settings.devices);
  return kSuccess;
}

Code cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= library().settings.devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

Code cuDeviceGetName(char* name, int bytes, int /*device*/) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "Stand-in");
  return kSuccess;
}

Code cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  const auto capability = static_cast<int>(library().settings.capability);
  if (attribute == libcuda::kCapabilityMajor) {
    *value = capability / 10;
  } else if (attribute == libcuda::kCapabilityMinor) {
    *value = capability % 10;
  } else if (attribute == libcuda::kSharedBytes) {
    *value = static_cast<int>(fake::kSharedBytes);
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

// A context that is there keeps its flags.
Code cuDevicePrimaryCtxSetFlags_v2(int /*device*/, unsigned flags) {
  Library& lib = library();
  const std::lock_guard<std::mutex> lock(lib.mutex);
  if (lib.retained > 0) return kContextInUse;
  lib.record.context_flags = flags;
  return kSuccess;
}

Code cuDevicePrimaryCtxRetain(libcuda::Context** context, int /*device*/) {
  Library& lib = library();
  const std::lock_guard<std::mutex> lock(lib.mutex);
  if (!lib.started) return kNotInitialized;
  if (lib.retained++ == 0) lib.failure = kSuccess;
  ++lib.record.objects;
  lib.context.is_there = true;
  *context = reinterpret_cast<libcuda::Context*>(&lib.context);
  return kSuccess;
}

Code cuDevicePrimaryCtxRelease_v2(int /*device*/) {
  Library& lib = library();
  const std::lock_guard<std::mutex> lock(lib.mutex);
  if (lib.retained == 0) return lib.misuse(kInvalidContext, "release of no context");
  --lib.record.objects;
  lib.context.is_there = --lib.retained > 0;
  return kSuccess;
}

Code cuCtxPushCurrent_v2(libcuda::Context* context) {
  contexts().push_back(context);
  return kSuccess;
}

Code cuCtxPopCurrent_v2(libcuda::Context** context) {
  if (contexts().empty()) return library().misuse(kInvalidContext, "pop of no context");
  *context = contexts().back();
  contexts().pop_back();
  return kSuccess;
}

Code cuStreamCreate(libcuda::Stream** stream, unsigned flags) {
  const Call call("cuStreamCreate");
  if (call.fails()) return call.code();
  Library& lib = library();
  if (flags != libcuda::kNonBlocking) {
    return lib.misuse(kInvalidValue, "expected a stream apart from the default one");
  }
  *stream = reinterpret_cast<libcuda::Stream*>(make(lib.streams));
  return *stream == nullptr ? kOutOfResources : kSuccess;
}

Code cuStreamDestroy_v2(libcuda::Stream* stream) {
  const Call call("cuStreamDestroy");
  Library& lib = library();
  if (!is_stream(stream)) return lib.misuse(kInvalidValue, "destroys no stream");
  if (!lib.work.empty() && lib.failure == kSuccess) lib.misuse(kSuccess, "destroys what runs");
  reinterpret_cast<Handle*>(stream)->is_there = false;
  --lib.record.objects;
  return kSuccess;
}

Code cuStreamSynchronize(libcuda::Stream* stream) {
  const Call call("cuStreamSynchronize");
  if (call.fails()) return call.code();
  if (!is_stream(stream)) return library().misuse(kInvalidValue, "waits for no stream");
  ++library().record.waits;
  library().run_all();
  return library().failure;
}

Code cuStreamQuery(libcuda::Stream* stream) {
  const Call call("cuStreamQuery");
  if (call.fails()) return call.code();
  if (!is_stream(stream)) return library().misuse(kInvalidValue, "asks for no stream");
  Library& lib = library();
  if (std::exchange(lib.asked, true)) {
    lib.asked = false;
    lib.run_all();
    return lib.failure;
  }
  return lib.work.empty() ? lib.failure : libcuda::kNotReady;
}

Code cuModuleLoadData(libcuda::Module** module, const void* image) {
  const Call call("cuModuleLoadData");
  if (call.fails()) return call.code();
  Library& lib = library();
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  if (magic != kImageMagic) return kInvalidImage;
  for (std::size_t i = 0; i < lib.kernels.size(); ++i) {
    lib.kernels[i] = {.kernel = static_cast<Kernel>(i)};
  }
  *module = reinterpret_cast<libcuda::Module*>(make(lib.modules));
  return *module == nullptr ? kOutOfResources : kSuccess;
}

Code cuModuleUnload(libcuda::Module* module) {
  const Call call("cuModuleUnload");
  Library& lib = library();
  if (!is_there(lib.modules, module)) {
    return lib.misuse(kInvalidValue, "unloads no module");
  }
  if (!lib.work.empty() && lib.failure == kSuccess) lib.misuse(kSuccess, "unloads what runs");
  reinterpret_cast<Handle*>(module)->is_there = false;
  --lib.record.objects;
  return kSuccess;
}

Code cuModuleGetFunction(libcuda::Function** function, libcuda::Module* module, const char* name) {
  const Call call("cuModuleGetFunction");
  if (call.fails()) return call.code();
  Library& lib = library();
  if (!is_there(lib.modules, module)) return kInvalidValue;
  for (std::size_t i = 0; i < lib.kernels.size(); ++i) {
    if (name != fmt::format("kakeya_{}", kKernelNames[i])) continue;
    *function = reinterpret_cast<libcuda::Function*>(&lib.kernels[i]);
    return kSuccess;
  }
  return kNotFound;
}

Code cuFuncSetAttribute(libcuda::Function* function, int attribute, int value) {
  const Call call("cuFuncSetAttribute");
  if (call.fails()) return call.code();
  constexpr auto kMost = static_cast<int>(emulated::Emulator::kMostSharedBytes);
  if (attribute == libcuda::kSharedCarveout) {
    if (value != libcuda::kMostCarveout) return kInvalidValue;
    ++library().record.carveouts;
    return kSuccess;
  }
  if (attribute != libcuda::kMostDynamicSharedBytes || value > kMost) return kInvalidValue;
  ++library().record.attributes;
  reinterpret_cast<KernelHandle*>(function)->shared_bytes = value;
  return kSuccess;
}

Code cuLaunchKernel(libcuda::Function* function,
                    unsigned blocks_x,
                    unsigned blocks_y,
                    unsigned blocks_z,
                    unsigned threads_x,
                    unsigned threads_y,
                    unsigned threads_z,
                    unsigned shared_bytes,
                    libcuda::Stream* stream,
                    void** parameters,
                    void** extra) {
  const Call call("cuLaunchKernel");
  if (call.fails()) return call.code();
  Library& lib = library();
  const KernelHandle& kernel = *reinterpret_cast<KernelHandle*>(function);
  const libcuda::KernelNode what = {function,  blocks_x,  blocks_y,     blocks_z, threads_x,
                                    threads_y, threads_z, shared_bytes, nullptr,  extra};
  if (!is_stream(stream)) return lib.misuse(kInvalidValue, "a launch on no stream");
  ++lib.record.single_launches;
  return put_kernel_off(what, handed_to(kernel, parameters));
}

}  // extern "C"
