// The best speeds of this machine, measured now: reading memory and computing in registers. Kernel
// speeds are given as parts of these, for a machine's bandwidth changes from minute to minute.
#pragma once

#include <cstddef>

#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"

namespace kakeya::cpu {

// GB/s (1e9 bytes) that all threads read together, from a buffer of at least 512 MiB and four times
// the last-level cache. Median of the passes that fit into `seconds`, at least three; 0 if there is
// no memory for the buffer. The default is enough beside each of several measurements.
double measure_read_bandwidth(ThreadPool& pool, double seconds = 0.15);

// GFLOP/s of all threads in the unit's own instructions (f32 multiply-adds; bf16 dot products or
// tiles). Best of several passes.
double measure_f32_peak(ThreadPool& pool, const Kernels& kernels, double seconds);
double measure_bf16_peak(ThreadPool& pool, const Kernels& kernels, double seconds);

// CPU seconds of a clock cycle of this thread's core, by a chain of multiplications of three cycles
// each; some microseconds. 0 where nobody knows how long those take.
double measure_cycle_seconds();

// Bytes of the last-level cache, or 0 if the system does not tell.
std::size_t last_level_cache_bytes();

}  // namespace kakeya::cpu
