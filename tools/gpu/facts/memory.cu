// F1: how fast memory is read, by loads and by bulk copies. F6: how much of what was prefetched
// survives in L2. F8: how soon the host has what the card writes. F10: uploads.
#include <thread>

#include "facts.h"

namespace {

// Threads keep kLoads loads of 16 bytes in flight each.
template <int kLoads>
__global__ void read_by_loads(const uint4* from, std::int64_t count, unsigned* out) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  for (; at + (kLoads - 1) * stride < count; at += kLoads * stride) {
    uint4 got[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) got[i] = __ldcs(from + at + i * stride);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) sum ^= got[i].x ^ got[i].y ^ got[i].z ^ got[i].w;
  }
  if (sum == 12345) *out = sum;
}

__device__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ void wait_for(unsigned barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

__device__ void bulk_copy(unsigned to, const void* from, int bytes, unsigned barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// A ring of `stages` chunks of shared memory; all warps read a chunk before it is filled again.
__global__ void read_by_bulk_copies(
    const char* from, std::int64_t chunks, int chunk_bytes, int stages, unsigned* out) {
  extern __shared__ __align__(128) char ring[];
  __shared__ std::uint64_t barriers[64];
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barriers[i])));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const auto copy = [&](std::int64_t chunk, int stage) {
    bulk_copy(shared_address(ring + stage * chunk_bytes), from + chunk * chunk_bytes, chunk_bytes,
              shared_address(&barriers[stage]));
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      const std::int64_t chunk = blockIdx.x + static_cast<std::int64_t>(i) * gridDim.x;
      if (chunk < chunks) copy(chunk, i);
    }
  }
  unsigned sum = 0;
  int stage = 0;
  unsigned phase = 0;
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    wait_for(shared_address(&barriers[stage]), phase);
    const auto* words = reinterpret_cast<const uint4*>(ring + stage * chunk_bytes);
    for (int i = threadIdx.x; i < chunk_bytes / 16; i += blockDim.x) {
      sum ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
    }
    __syncthreads();
    const std::int64_t next = chunk + static_cast<std::int64_t>(stages) * gridDim.x;
    if (threadIdx.x == 0 && next < chunks) copy(next, stage);
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
  if (sum == 12345) *out = sum;
}

__global__ void prefetch(const char* from, std::int64_t bytes) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 128;
  if (at < bytes) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
}

// Beside `evict_first` loads, as weights are read: once.
__global__ void read_once(const uint4* from, std::int64_t count, unsigned* out) {
  std::uint64_t once;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
  unsigned sum = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       at < count; at += stride) {
    uint4 got;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(from + at), "l"(once));
    sum ^= got.x ^ got.y ^ got.z ^ got.w;
  }
  if (sum == 12345) *out = sum;
}

// Answers what the host writes, `rounds` times.
__global__ void answer(volatile int* asked, volatile int* answered, int rounds) {
  for (int i = 1; i <= rounds; ++i) {
    while (*asked < i) {
    }
    *answered = i;
    __threadfence_system();
  }
}

double gb_per_s(std::int64_t bytes, double us) {
  return bytes / us / 1000.0;
}

void bandwidth(cudaStream_t stream) {
  const std::int64_t bytes = 4096 * kMiB;
  const CardArray<char> from(bytes);
  const CardArray<unsigned> out(1);
  CHECK(cudaMemsetAsync(from.data(), 0x5a, bytes, stream));
  const auto* words = reinterpret_cast<const uint4*>(from.data());
  for (const int blocks : {1, 2, 4, 8}) {
    const double us = median_us(stream, 7, [&] {
      read_by_loads<8>
          <<<blocks * multiprocessors(), 256, 0, stream>>>(words, bytes / 16, out.data());
    });
    say("F1", "\"by\": \"loads\", \"in_flight_kib\": %d, \"gb_per_s\": %.0f", blocks * 32,
        gb_per_s(bytes, us));
  }
  for (const int blocks : {1, 2}) {
    for (const int ring_kib : {32, 64, 96, 128, 160, 192}) {
      for (const int chunk_kib : {4, 8, 16}) {
        if (ring_kib * blocks > 208 || chunk_kib * 2 > ring_kib) continue;
        CHECK(cudaFuncSetAttribute(read_by_bulk_copies, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   ring_kib * 1024));
        const double us = median_us(stream, 5, [&] {
          read_by_bulk_copies<<<blocks * multiprocessors(), 256, ring_kib * 1024, stream>>>(
              from.data(), bytes / (chunk_kib * 1024), chunk_kib * 1024, ring_kib / chunk_kib,
              out.data());
        });
        say("F1",
            "\"by\": \"bulk copies\", \"blocks\": %d, \"ring_kib\": %d, \"chunk_kib\": %d, "
            "\"gb_per_s\": %.0f",
            blocks, ring_kib, chunk_kib, gb_per_s(bytes, us));
      }
    }
  }
}

void prefetched(cudaStream_t stream) {
  const std::int64_t others = 60 * kMiB;
  const CardArray<char> stream_of(others);
  const CardArray<char> kept(64 * kMiB);
  const CardArray<unsigned> out(1);
  CHECK(cudaMemsetAsync(stream_of.data(), 1, others, stream));
  CHECK(cudaMemsetAsync(kept.data(), 1, 64 * kMiB, stream));
  const auto read = [&](const CardArray<char>& from, std::int64_t bytes) {
    read_once<<<8 * multiprocessors(), 256, 0, stream>>>(
        reinterpret_cast<const uint4*>(from.data()), bytes / 16, out.data());
  };
  const auto fetch = [&](std::int64_t bytes) {
    prefetch<<<static_cast<unsigned>(bytes / 128 / 256), 256, 0, stream>>>(kept.data(), bytes);
  };
  // Reading it cold, straight from L2, and from L2 after the stream; the last by differences.
  for (const int mib : {2, 4, 8, 12, 16, 24, 32}) {
    const std::int64_t bytes = mib * kMiB;
    const double streamed = median_us(stream, 15, [&] { read(stream_of, others); });
    const double both_cold = median_us(stream, 15, [&] {
      read(stream_of, others);
      read(kept, bytes);
    });
    const double fetched = median_us(stream, 15, [&] {
      fetch(bytes);
      read(stream_of, others);
    });
    const double both_fetched = median_us(stream, 15, [&] {
      fetch(bytes);
      read(stream_of, others);
      read(kept, bytes);
    });
    const double hot = median_us(stream, 15, [&] {
      fetch(bytes);
      read(kept, bytes);
    });
    const double fetch_alone = median_us(stream, 15, [&] { fetch(bytes); });
    say("F6", "\"mib\": %d, \"cold_us\": %.1f, \"after_stream_us\": %.1f, \"hot_us\": %.1f", mib,
        both_cold - streamed, both_fetched - fetched, hot - fetch_alone);
  }
}

void host_latency(cudaStream_t stream) {
  const std::int64_t bytes = kMiB;
  const CardArray<char> logits(bytes);
  char* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, bytes));
  std::vector<char> pageable(bytes);
  const auto copy_us = [&](char* to) {
    return median_us(stream, 31, [&] {
      CHECK(cudaMemcpyAsync(to, logits.data(), bytes, cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
    });
  };
  say("F8", "\"read_mib\": 1, \"pinned_us\": %.1f, \"pageable_us\": %.1f", copy_us(pinned),
      copy_us(pageable.data()));
  auto* flags = reinterpret_cast<volatile int*>(pinned);
  flags[0] = flags[64] = 0;
  const int rounds = 2000;
  const double us = median_us(stream, 1, [&] {
    flags[0] = flags[64] = 0;
    answer<<<1, 1, 0, stream>>>(flags, flags + 64, rounds);
    for (int i = 1; i <= rounds; ++i) {
      flags[0] = i;
      while (flags[64] < i) {
      }
    }
  });
  say("F8", "\"round_trip_through_mapped_memory_us\": %.2f", us / rounds);
  CHECK(cudaFreeHost(pinned));
}

void uploads(cudaStream_t stream) {
  const std::int64_t bytes = 1024 * kMiB;
  const CardArray<char> to(bytes);
  char* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, bytes));
  std::vector<char> pageable(bytes, 1);
  const auto rate = [&](const char* from) {
    return gb_per_s(
        bytes, median_us(stream, 5, [&] {
          CHECK(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyHostToDevice, stream));
        }));
  };
  say("F10", "\"upload_pinned_gb_per_s\": %.1f, \"upload_pageable_gb_per_s\": %.1f", rate(pinned),
      rate(pageable.data()));
  CHECK(cudaFreeHost(pinned));
}

}  // namespace

void memory_facts(cudaStream_t stream) {
  bandwidth(stream);
  prefetched(stream);
  host_latency(stream);
  uploads(stream);
}
