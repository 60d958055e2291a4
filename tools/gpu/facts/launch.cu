// F3: what stands between two kernels of a graph. F4: a conditional node's iteration. F7: a
// prologue of three reductions. F11: what making, changing and launching a graph costs the host.
#include <chrono>

#include "facts.h"

namespace {

constexpr int kNodes = 200;

__global__ void trivial(float* out) {
  if (threadIdx.x == 0 && out[0] == 1234.5F) out[1] = 1;
}

// A kernel like trivial() that may start before what is in front of it has ended.
__global__ void dependent(float* out) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x == 0 && out[0] == 1234.5F) out[1] = 1;
}

// With 16 KiB a block fetched into L2 before it waits.
__global__ void fetching(float* out, const char* next) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("prefetch.global.L2 [%0];" ::"l"(
      next + (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 128));
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x == 0 && out[0] == 1234.5F) out[1] = 1;
}

template <int kReductions>
__global__ void prologue(const float* x, int width, float* out) {
  __shared__ float parts[32];
  float scale = 1;
#pragma unroll
  for (int i = 0; i < kReductions; ++i) {
    float sum = 0;
    for (int k = threadIdx.x; k < width; k += blockDim.x) sum = fmaf(x[k] * scale, x[k], sum);
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0U, sum, other);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0;
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0U, sum, other);
    scale = rsqrtf(sum + 1.0F);
  }
  if (scale == 1234.5F) *out = scale;
}

template <typename... Parameters, typename... Values>
void launch(cudaStream_t stream, bool early, void (*kernel)(Parameters...), Values... values) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = multiprocessors();
  config.blockDim = 256;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  CHECK(cudaLaunchKernelEx(&config, kernel, values...));
}

template <typename Work>
cudaGraph_t captured(cudaStream_t stream, const Work& work) {
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  work();
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

double replay_us(cudaStream_t stream, cudaGraph_t graph) {
  cudaGraphExec_t ready;
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  const double us = median_us(stream, 31, [&] { CHECK(cudaGraphLaunch(ready, stream)); });
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
  return us;
}

template <typename Kernel>
double node_us(cudaStream_t stream, const Kernel& kernel) {
  return replay_us(stream, captured(stream,
                                    [&] {
                                      for (int i = 0; i < kNodes; ++i) kernel(i);
                                    })) /
         kNodes;
}

void bubbles(cudaStream_t stream) {
  const CardArray<float> out(4096);
  const CardArray<char> next(256 * kMiB);
  CHECK(cudaMemsetAsync(out.data(), 0, 4096 * sizeof(float), stream));
  const double streamed = median_us(stream, 15,
                                    [&] {
                                      for (int i = 0; i < kNodes; ++i)
                                        launch(stream, false, trivial, out.data());
                                    }) /
                          kNodes;
  const double plain = node_us(stream, [&](int) { launch(stream, false, trivial, out.data()); });
  const double early = node_us(stream, [&](int) { launch(stream, true, dependent, out.data()); });
  const double fetch = node_us(stream, [&](int i) {
    launch(stream, true, fetching, out.data(),
           static_cast<const char*>(next.data() + i % 32 * 8 * kMiB));
  });
  say("F3",
      "\"kernels\": %d, \"stream_us\": %.2f, \"graph_us\": %.2f, \"graph_early_start_us\": %.2f, "
      "\"graph_early_start_and_prefetch_us\": %.2f",
      kNodes, streamed, plain, early, fetch);
  const auto* x = static_cast<const float*>(out.data());
  const double one =
      node_us(stream, [&](int) { launch(stream, false, prologue<1>, x, 2816, out.data()); });
  const double three =
      node_us(stream, [&](int) { launch(stream, false, prologue<3>, x, 2816, out.data()); });
  say("F7", "\"width\": 2816, \"one_reduction_us\": %.2f, \"three_reductions_us\": %.2f",
      one - plain, three - plain);
}

__global__ void go_on(cudaGraphConditionalHandle handle, int* left) {
  cudaGraphSetConditional(handle, --*left > 0 ? 1 : 0);
}

__global__ void set_count(int* left, int count) {
  *left = count;
}

double loop_us(cudaStream_t stream, int iterations, int kernels) {
  const CardArray<int> left(1);
  const CardArray<float> out(2);
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams loop = {};
  loop.type = cudaGraphNodeTypeConditional;
  loop.conditional.handle = handle;
  loop.conditional.type = cudaGraphCondTypeWhile;
  loop.conditional.size = 1;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &loop));
  CHECK(cudaStreamBeginCaptureToGraph(stream, loop.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                      cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kernels; ++i) trivial<<<multiprocessors(), 256, 0, stream>>>(out.data());
  go_on<<<1, 1, 0, stream>>>(handle, left.data());
  CHECK(cudaStreamEndCapture(stream, nullptr));
  cudaGraphExec_t ready;
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  const double us = median_us(stream, 11, [&] {
    set_count<<<1, 1, 0, stream>>>(left.data(), iterations);
    CHECK(cudaGraphLaunch(ready, stream));
  });
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
  return us;
}

void loops(cudaStream_t stream) {
  for (const int kernels : {0, 10}) {
    const double us = (loop_us(stream, 110, kernels) - loop_us(stream, 10, kernels)) / 100;
    say("F4", "\"kernels_in_the_loop\": %d, \"iteration_us\": %.2f", kernels + 1, us);
  }
}

template <typename Work>
double host_us(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

void graph_costs(cudaStream_t stream) {
  const CardArray<float> out(2);
  const auto make = [&] {
    return captured(stream, [&] {
      for (int i = 0; i < 185; ++i) launch(stream, true, dependent, out.data());
    });
  };
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  const double capture = host_us([&] { graph = make(); });
  const double instantiate = host_us([&] { CHECK(cudaGraphInstantiate(&ready, graph, 0)); });
  const double first = host_us([&] { CHECK(cudaGraphLaunch(ready, stream)); });
  CHECK(cudaStreamSynchronize(stream));
  std::vector<double> launches;
  for (int i = 0; i < 31; ++i) {
    launches.push_back(host_us([&] { CHECK(cudaGraphLaunch(ready, stream)); }));
    CHECK(cudaStreamSynchronize(stream));
  }
  std::nth_element(launches.begin(), launches.begin() + 15, launches.end());
  cudaGraph_t other = make();
  cudaGraphExecUpdateResultInfo info;
  const double update = host_us([&] { CHECK(cudaGraphExecUpdate(ready, other, &info)); });
  say("F11",
      "\"nodes\": 185, \"capture_us\": %.0f, \"instantiate_us\": %.0f, \"first_launch_us\": %.0f, "
      "\"launch_us\": %.1f, \"update_us\": %.0f",
      capture, instantiate, first, launches[15], update);
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphDestroy(other));
}

}  // namespace

void launch_facts(cudaStream_t stream) {
  bubbles(stream);
  loops(stream);
  graph_costs(stream);
}
