// F5: how long blocks wait for each other: in a cluster, through a neighbour's shared memory, and
// across the grid by atomics.
#include <cooperative_groups.h>

#include "facts.h"

namespace {

namespace cg = cooperative_groups;

constexpr int kRounds = 1000;

__global__ void cluster_barriers() {
  const cg::cluster_group cluster = cg::this_cluster();
  for (int i = 0; i < kRounds; ++i) cluster.sync();
}

// Each load's address is what the last one gave.
__global__ void neighbour_loads(int* out) {
  __shared__ int zero;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) zero = 0;
  cluster.sync();
  int at = 0;
  if (threadIdx.x == 0) {
    const int* theirs = cluster.map_shared_rank(&zero, cluster.block_rank() ^ 1U);
    for (int i = 0; i < kRounds; ++i) at = *reinterpret_cast<const volatile int*>(theirs + at);
  }
  cluster.sync();
  if (at == 12345) *out = at;
}

__global__ void grid_barriers(unsigned* count) {
  for (int i = 1; i <= kRounds; ++i) {
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned seen = 0;
      asm volatile("red.add.release.gpu.global.u32 [%0], 1;" ::"l"(count) : "memory");
      while (seen < i * gridDim.x) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
      }
    }
    __syncthreads();
  }
}

template <typename... Parameters, typename... Values>
void launch_clusters(cudaStream_t stream,
                     int size,
                     void (*kernel)(Parameters...),
                     Values... values) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = size;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = 128;
  config.blockDim = 256;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, kernel, values...));
}

}  // namespace

void exchange_facts(cudaStream_t stream) {
  const CardArray<int> out(1);
  const CardArray<unsigned> count(1);
  for (const int size : {2, 4, 8}) {
    const double us =
        median_us(stream, 7, [&] { launch_clusters(stream, size, cluster_barriers); });
    say("F5", "\"cluster\": %d, \"barrier_us\": %.3f", size, us / kRounds);
  }
  const double load =
      median_us(stream, 7, [&] { launch_clusters(stream, 2, neighbour_loads, out.data()); });
  say("F5", "\"load_of_a_neighbours_shared_memory_us\": %.3f", load / kRounds);
  const double grid = median_us(stream, 7, [&] {
    CHECK(cudaMemsetAsync(count.data(), 0, sizeof(unsigned), stream));
    grid_barriers<<<multiprocessors(), 256, 0, stream>>>(count.data());
  });
  say("F5", "\"grid_barrier_us\": %.3f", grid / kRounds);
}
