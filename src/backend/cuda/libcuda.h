// The part of NVIDIA's driver library that we call. Its C interface is published as the CUDA Driver
// API; it is declared here, so that a build needs nothing of NVIDIA's and a program starts where
// there is none. Where cuda.h is found a test compares the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kakeya/status.h"

namespace kakeya::cuda::libcuda {

using Code = int;  // CUresult
using Address = unsigned long long;
struct Context;
struct Stream;
struct Module;
struct Function;
struct Graph;
struct GraphNode;
struct ReadyGraph;  // CUgraphExec

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
  Function* function = nullptr;
  unsigned blocks_x = 0;
  unsigned blocks_y = 0;
  unsigned blocks_z = 1;
  unsigned threads_x = 0;
  unsigned threads_y = 1;
  unsigned threads_z = 1;
  unsigned shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;   // instead of a function
  void* context = nullptr;  // null: the thread's
};

// CUgraphEdgeData
struct Edge {
  unsigned char from_port = 0;
  unsigned char to_port = 0;
  unsigned char type = 0;
  unsigned char reserved[5] = {};
};
// The kernel behind the edge starts when all blocks in front of it let it, and waits by itself for
// what it needs (programmatic dependent launch).
inline constexpr Edge kEarlyStart = {1, 0, 1, {}};

inline constexpr Code kSuccess = 0;
inline constexpr Code kOutOfMemory = 2;
inline constexpr Code kNotReady = 600;

// CUdevice_attribute
inline constexpr int kCapabilityMajor = 75;
inline constexpr int kCapabilityMinor = 76;
inline constexpr int kSharedBytes = 81;  // of a multiprocessor
// CUfunction_attribute
inline constexpr int kMostDynamicSharedBytes = 8;
// The share of a multiprocessor's memory that is to be shared memory, in percent.
inline constexpr int kSharedCarveout = 9;
inline constexpr int kMostCarveout = 100;
// A flag of contexts: a thread that waits looks again and again.
inline constexpr unsigned kSpins = 1;
// A flag of streams: they do not wait for work of the default stream.
inline constexpr unsigned kNonBlocking = 1;

// Ours, the exported name, and what it takes; all return a Code. Names with a version are those for
// 64-bit sizes and addresses.
#define KAKEYA_LIBCUDA_FUNCTIONS(FUNCTION)                                                     \
  FUNCTION(init, cuInit, (unsigned flags))                                                     \
  FUNCTION(driver_version, cuDriverGetVersion, (int* version))                                 \
  FUNCTION(error_name, cuGetErrorName, (Code code, const char** name))                         \
  FUNCTION(error_text, cuGetErrorString, (Code code, const char** text))                       \
  FUNCTION(device_count, cuDeviceGetCount, (int* count))                                       \
  FUNCTION(get_device, cuDeviceGet, (int* device, int ordinal))                                \
  FUNCTION(device_name, cuDeviceGetName, (char* name, int bytes, int device))                  \
  FUNCTION(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, int device))    \
  FUNCTION(set_context_flags, cuDevicePrimaryCtxSetFlags_v2, (int device, unsigned flags))     \
  FUNCTION(retain_context, cuDevicePrimaryCtxRetain, (Context * *context, int device))         \
  FUNCTION(release_context, cuDevicePrimaryCtxRelease_v2, (int device))                        \
  FUNCTION(push_context, cuCtxPushCurrent_v2, (Context * context))                             \
  FUNCTION(pop_context, cuCtxPopCurrent_v2, (Context * *context))                              \
  FUNCTION(create_stream, cuStreamCreate, (Stream * *stream, unsigned flags))                  \
  FUNCTION(destroy_stream, cuStreamDestroy_v2, (Stream * stream))                              \
  FUNCTION(synchronize, cuStreamSynchronize, (Stream * stream))                                \
  FUNCTION(query, cuStreamQuery, (Stream * stream))                                            \
  FUNCTION(load_module, cuModuleLoadData, (Module * *module, const void* image))               \
  FUNCTION(unload_module, cuModuleUnload, (Module * module))                                   \
  FUNCTION(get_function, cuModuleGetFunction,                                                  \
           (Function * *function, Module * module, const char* name))                          \
  FUNCTION(set_attribute, cuFuncSetAttribute, (Function * function, int attribute, int value)) \
  FUNCTION(launch, cuLaunchKernel,                                                             \
           (Function * function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,      \
            unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes, \
            Stream* stream, void** parameters, void** extra))                                  \
  FUNCTION(create_graph, cuGraphCreate, (Graph * *graph, unsigned flags))                      \
  FUNCTION(destroy_graph, cuGraphDestroy, (Graph * graph))                                     \
  FUNCTION(add_kernel_node, cuGraphAddKernelNode_v2,                                           \
           (GraphNode * *node, Graph * graph, GraphNode* const* after, std::size_t count,      \
            const KernelNode* what))                                                           \
  FUNCTION(add_edges, cuGraphAddDependencies_v2,                                               \
           (Graph * graph, GraphNode* const* from, GraphNode* const* to, const Edge* edges,    \
            std::size_t count))                                                                \
  FUNCTION(prepare_graph, cuGraphInstantiateWithFlags,                                         \
           (ReadyGraph * *ready, Graph * graph, unsigned long long flags))                     \
  FUNCTION(set_kernel_node, cuGraphExecKernelNodeSetParams_v2,                                 \
           (ReadyGraph * ready, GraphNode * node, const KernelNode* what))                     \
  FUNCTION(launch_graph, cuGraphLaunch, (ReadyGraph * ready, Stream * stream))                 \
  FUNCTION(destroy_ready_graph, cuGraphExecDestroy, (ReadyGraph * ready))                      \
  FUNCTION(memory_info, cuMemGetInfo_v2, (std::size_t * free, std::size_t * total))            \
  FUNCTION(allocate, cuMemAlloc_v2, (Address * address, std::size_t bytes))                    \
  FUNCTION(release, cuMemFree_v2, (Address address))                                           \
  FUNCTION(allocate_host, cuMemAllocHost_v2, (void** memory, std::size_t bytes))               \
  FUNCTION(release_host, cuMemFreeHost, (void* memory))                                        \
  FUNCTION(upload, cuMemcpyHtoDAsync_v2,                                                       \
           (Address to, const void* from, std::size_t bytes, Stream* stream))                  \
  FUNCTION(download, cuMemcpyDtoHAsync_v2,                                                     \
           (void* to, Address from, std::size_t bytes, Stream* stream))                        \
  FUNCTION(copy, cuMemcpyDtoDAsync_v2,                                                         \
           (Address to, Address from, std::size_t bytes, Stream * stream))                     \
  FUNCTION(fill, cuMemsetD8Async,                                                              \
           (Address to, unsigned char value, std::size_t bytes, Stream* stream))

struct Table {
#define KAKEYA_FUNCTION(name, symbol, parameters) Code(*name) parameters = nullptr;
  KAKEYA_LIBCUDA_FUNCTIONS(KAKEYA_FUNCTION)
#undef KAKEYA_FUNCTION
};

// Opens the library at `path`, as dlopen() finds it, and starts it. It stays open: it has threads
// of its own. Errors: kFailedPrecondition if there is none, if it lacks a function, or if it finds
// nothing to work with.
Result<Table> open(const std::string& path);

// "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)"
std::string describe(const Table& table, Code code);

// "13.0" of 13000, as the library counts versions.
std::string version_text(int version);

}  // namespace kakeya::cuda::libcuda
