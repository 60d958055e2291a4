// dev.h for cards.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#define KAKEYA_DEVICE __device__ __forceinline__
#define KAKEYA_UNROLL _Pragma("unroll")
#define KAKEYA_NO_UNROLL _Pragma("unroll 1")
#define KAKEYA_UNROLL_SOME _Pragma("unroll 4")

namespace kakeya::cuda::dev {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

KAKEYA_DEVICE int thread() {
  return static_cast<int>(threadIdx.x);
}
KAKEYA_DEVICE int threads() {
  return static_cast<int>(blockDim.x);
}
KAKEYA_DEVICE int lane() {
  return static_cast<int>(threadIdx.x % kWarp);
}
KAKEYA_DEVICE int warp() {
  return static_cast<int>(threadIdx.x / kWarp);
}
KAKEYA_DEVICE std::int64_t block_x() {
  return blockIdx.x;
}
KAKEYA_DEVICE std::int64_t block_y() {
  return blockIdx.y;
}

// Nothing where kernels do not start before those in front of them have ended.
KAKEYA_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
KAKEYA_DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

KAKEYA_DEVICE void sync_block() {
  __syncthreads();
}
KAKEYA_DEVICE void sync_warp() {
  __syncwarp();
}

template <int kCount>
KAKEYA_DEVICE void warp_sums(float (&values)[kCount]) {
  for (int other = 16; other > 0; other /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = values[i] + __shfl_xor_sync(kAllLanes, values[i], other);
    }
  }
}

template <int kCount>
KAKEYA_DEVICE void warp_swap(float (&values)[kCount], int apart) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = __shfl_xor_sync(kAllLanes, values[i], apart);
}

template <typename T, int kCount>
KAKEYA_DEVICE void of_lanes(T own, int first, T (&all)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) all[i] = __shfl_sync(kAllLanes, own, first + i);
}

KAKEYA_DEVICE float warp_max(float value) {
  for (int other = 16; other > 0; other /= 2) {
    const float theirs = __shfl_xor_sync(kAllLanes, value, other);
    value = theirs > value ? theirs : value;
  }
  return value;
}

// The largest one of the warp.
KAKEYA_DEVICE std::uint32_t warp_most(std::uint32_t value) {
  return __reduce_max_sync(kAllLanes, value);
}

// Without this the compiler computes what is cheap again wherever it is used.
template <typename T>
KAKEYA_DEVICE void hold(T& value) {
  static_assert(sizeof(T) == 4);
  asm volatile("" : "+r"(value));
}

KAKEYA_DEVICE std::uint32_t lanes_with(std::uint32_t value) {
  return __match_any_sync(kAllLanes, value);
}
KAKEYA_DEVICE int count_bits(std::uint32_t bits) {
  return __popc(bits);
}

KAKEYA_DEVICE int warp_total(int value) {
  return __reduce_add_sync(kAllLanes, value);
}

// Capability 9.0: as the emulator says. Others: as they do it.
KAKEYA_DEVICE void mma(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int kCount>
KAKEYA_DEVICE void integer_mma(int (&sums)[kCount][4],
                               const std::uint32_t (&a)[kCount][4],
                               const std::uint32_t (&b)[kCount][2],
                               int first) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=r"(sums[i][0]), "=r"(sums[i][1]), "=r"(sums[i][2]), "=r"(sums[i][3])
        : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[i][0]), "r"(b[i][1]),
          "r"(first));
  }
}

template <int kCount>
KAKEYA_DEVICE void bf16_pairs(const float (&values)[kCount], std::uint32_t (&out)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    out[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

KAKEYA_DEVICE void publish_writes() {
  __threadfence();
}
template <typename T>
KAKEYA_DEVICE T load_of_host(const T* address) {
  return *static_cast<const volatile T*>(address);
}
KAKEYA_DEVICE void tell_host(std::int64_t* address, std::int64_t number) {
  asm volatile("st.release.sys.global.b64 [%0], %1;" ::"l"(address), "l"(number) : "memory");
}

template <typename T>
class Global {
 public:
  KAKEYA_DEVICE explicit Global(T* address) : address_(address) {}
  KAKEYA_DEVICE T load(std::int64_t index) const { return address_[index]; }
  KAKEYA_DEVICE void store(std::int64_t index, T value) const { address_[index] = value; }
  // Past the cache of the multiprocessor, which may hold what was there before.
  KAKEYA_DEVICE T load_fresh(std::int64_t index) const { return __ldcg(address_ + index); }
  KAKEYA_DEVICE void prefetch(std::int64_t index) const {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(address_ + index));
  }

 private:
  T* address_;
};

// The barrier in front brings the block's writes before those of its first thread, which releases
// all of them, and acquires those of blocks that came before; the one behind hands that on.
KAKEYA_DEVICE bool last_of(std::uint32_t* counter, std::uint32_t count) {
  __syncthreads();
  int is_last = 0;
  if (threadIdx.x == 0) {
    std::uint32_t before;
    __threadfence();
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
    __threadfence();
    is_last = before + 1 == count ? 1 : 0;
    if (is_last != 0) *counter = 0;
  }
  return __syncthreads_or(is_last) != 0;
}

template <typename T>
class Shared {
 public:
  KAKEYA_DEVICE explicit Shared(int first_word) {
    extern __shared__ __align__(16) std::uint32_t words[];
    address_ = reinterpret_cast<T*>(words + first_word);
  }
  KAKEYA_DEVICE T load(int index) const { return address_[index]; }
  KAKEYA_DEVICE void store(int index, T value) const { address_[index] = value; }
  template <typename Many>
  KAKEYA_DEVICE Many load_as(int index) const {
    return *reinterpret_cast<const Many*>(address_ + index);
  }
  template <typename Many>
  KAKEYA_DEVICE void store_as(int index, const Many& value) const {
    *reinterpret_cast<Many*>(address_ + index) = value;
  }

 private:
  T* address_;
};

class CopyPolicy {
 public:
  KAKEYA_DEVICE explicit CopyPolicy(bool once) {
    if (once) {
      asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
    } else {
      asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy_));
    }
    extern __shared__ __align__(16) std::uint32_t words[];
    // Kept in a register: otherwise it is computed for each copy.
    asm volatile("mov.u32 %0, %1;"
                 : "=r"(shared_)
                 : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(words))));
  }
  KAKEYA_DEVICE std::uint64_t policy() const { return policy_; }
  KAKEYA_DEVICE std::uint32_t shared() const { return shared_; }

 private:
  std::uint64_t policy_;
  std::uint32_t shared_;  // where its words begin
};

template <typename T>
KAKEYA_DEVICE void begin_copy(int word,
                              const T* from,
                              std::int64_t index,
                              const CopyPolicy& policy) {
  static_assert(sizeof(T) == 16);
  const std::uint32_t to = policy.shared() + 4 * static_cast<std::uint32_t>(word);
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from + index)), "l"(policy.policy())
               : "memory");
}
KAKEYA_DEVICE void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLater>
KAKEYA_DEVICE void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

KAKEYA_DEVICE void floats_of_halves(std::uint32_t pair, float (&out)[2]) {
  out[0] = __half2float(__ushort_as_half(static_cast<std::uint16_t>(pair)));
  out[1] = __half2float(__ushort_as_half(static_cast<std::uint16_t>(pair >> 16)));
}

KAKEYA_DEVICE std::uint32_t shared_address(int word) {
  extern __shared__ __align__(16) std::uint32_t words[];
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(words + word));
}
KAKEYA_DEVICE void load_matrices(int row_word, std::uint32_t (&pairs)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(shared_address(row_word))
               : "memory");
}
KAKEYA_DEVICE void load_matrices_turned(int row_word, std::uint32_t (&pairs)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(shared_address(row_word))
               : "memory");
}

KAKEYA_DEVICE float fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
KAKEYA_DEVICE double fma(double a, double b, double c) {
  return __fma_rn(a, b, c);
}
KAKEYA_DEVICE float sqrt(float x) {
  return __fsqrt_rn(x);
}
KAKEYA_DEVICE float round_even(float x) {
  return rintf(x);
}
KAKEYA_DEVICE double round_even(double x) {
  return rint(x);
}
// Two at a time: a single one takes four times as long.
template <int kCount>
KAKEYA_DEVICE void round_to_bf16(float (&values)[kCount]) {
  static_assert(kCount % 2 == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const float2 both = __bfloat1622float2(__floats2bfloat162_rn(values[i], values[i + 1]));
    values[i] = both.x;
    values[i + 1] = both.y;
  }
}
KAKEYA_DEVICE std::uint32_t bits_of(float x) {
  return __float_as_uint(x);
}
KAKEYA_DEVICE float float_of(std::uint32_t bits) {
  return __uint_as_float(bits);
}
KAKEYA_DEVICE double double_of(std::uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}

}  // namespace kakeya::cuda::dev
