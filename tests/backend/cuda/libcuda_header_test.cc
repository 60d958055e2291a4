// The declarations of src/backend/cuda/libcuda.h are those of NVIDIA's own header, as far as calls
// can tell: the compiler is the test.
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "backend/cuda/libcuda.h"

namespace kakeya::cuda {
namespace {

// Pointers of whatever; enumerations and numbers of the same size.
template <typename Ours, typename Theirs>
constexpr bool is_same_word = std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
                              sizeof(Ours) == sizeof(Theirs);

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<is_same_word<R, S> && (is_same_word<A, B> && ...)> {
};

#define KAKEYA_FUNCTION(name, symbol, parameters) \
  static_assert(SameCall<decltype(libcuda::Table::name), decltype(&::symbol)>::value);
KAKEYA_LIBCUDA_FUNCTIONS(KAKEYA_FUNCTION)
#undef KAKEYA_FUNCTION

using Node = CUDA_KERNEL_NODE_PARAMS_v2;
static_assert(sizeof(libcuda::KernelNode) == sizeof(Node));
static_assert(offsetof(libcuda::KernelNode, function) == offsetof(Node, func));
static_assert(offsetof(libcuda::KernelNode, blocks_x) == offsetof(Node, gridDimX));
static_assert(offsetof(libcuda::KernelNode, threads_x) == offsetof(Node, blockDimX));
static_assert(offsetof(libcuda::KernelNode, threads_z) == offsetof(Node, blockDimZ));
static_assert(offsetof(libcuda::KernelNode, shared_bytes) == offsetof(Node, sharedMemBytes));
static_assert(offsetof(libcuda::KernelNode, parameters) == offsetof(Node, kernelParams));
static_assert(offsetof(libcuda::KernelNode, kernel) == offsetof(Node, kern));
static_assert(offsetof(libcuda::KernelNode, context) == offsetof(Node, ctx));

static_assert(sizeof(libcuda::Edge) == sizeof(CUgraphEdgeData));
static_assert(offsetof(libcuda::Edge, from_port) == offsetof(CUgraphEdgeData, from_port));
static_assert(offsetof(libcuda::Edge, type) == offsetof(CUgraphEdgeData, type));
static_assert(libcuda::kEarlyStart.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
static_assert(libcuda::kEarlyStart.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);

static_assert(libcuda::kSuccess == CUDA_SUCCESS);
static_assert(libcuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(libcuda::kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(libcuda::kCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(libcuda::kMostDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(libcuda::kSpins == CU_CTX_SCHED_SPIN);
static_assert(libcuda::kNonBlocking == CU_STREAM_NON_BLOCKING);

}  // namespace
}  // namespace kakeya::cuda
