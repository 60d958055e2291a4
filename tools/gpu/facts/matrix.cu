// F2: are the tensor cores' bits those of the published model, whichever instruction is used? F9:
// how fast mma.sync is.
#include <cmath>
#include <cstring>
#include <random>

#include "facts.h"

namespace {

constexpr int kRows = 64;  // of a tile: wgmma's, four of mma.sync's
constexpr int kCols = 8;
constexpr int kDepth = 16;
constexpr int kTiles = 2048;

__device__ void mma_bf16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void mma_int8(int (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// b in shared memory as two blocks of 8 columns x 8 of depth, 128 bytes each.
__device__ void wgmma_bf16(float (&sums)[4], const unsigned (&a)[4], const void* b) {
  const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(b));
  const std::uint64_t descriptor =
      (address >> 4 & 0x3fff) | (std::uint64_t{128 >> 4} << 16) | (std::uint64_t{256 >> 4} << 32);
  asm volatile(
      "wgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, "
      "1, 1, 1, 0;\n"
      "wgmma.commit_group.sync.aligned;\n"
      "wgmma.wait_group.sync.aligned 0;"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor)
      : "memory");
}

// Computes a block's tile by both instructions: a [64, 16], b [8, 16], c and both results [64, 8].
__global__ void both(const std::uint16_t* as,
                     const std::uint16_t* bs,
                     const float* cs,
                     float* by_mma,
                     float* by_wgmma) {
  __shared__ __align__(128) std::uint16_t shared_b[kCols * kDepth];
  const std::uint16_t* b = bs + blockIdx.x * kCols * kDepth;
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;
  const int column = lane % 4 * 2;
  const int at_b = threadIdx.x;  // 128 elements, 128 threads
  shared_b[at_b % kDepth / 8 * 64 + at_b / kDepth * 8 + at_b % 8] = b[at_b];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const auto pair = [](const std::uint16_t* from) {
    return from[0] | static_cast<unsigned>(from[1]) << 16;
  };
  const std::uint16_t* a = as + (blockIdx.x * kRows + row) * kDepth + column;
  const unsigned fragment[4] = {pair(a), pair(a + 8 * kDepth), pair(a + 8),
                                pair(a + 8 * kDepth + 8)};
  const std::uint16_t* own_b = b + lane / 4 * kDepth + column;
  const unsigned fragment_b[2] = {pair(own_b), pair(own_b + 8)};
  const int at = (blockIdx.x * kRows + row) * kCols + column;
  const float* c = cs + at;
  float first[4] = {c[0], c[1], c[8 * kCols], c[8 * kCols + 1]};
  float second[4] = {first[0], first[1], first[2], first[3]};
  mma_bf16(first, fragment, fragment_b);
  wgmma_bf16(second, fragment, shared_b);
  for (int i = 0; i < 4; ++i) {
    by_mma[at + i / 2 * 8 * kCols + i % 2] = first[i];
    by_wgmma[at + i / 2 * 8 * kCols + i % 2] = second[i];
  }
}

struct Factor {
  std::int64_t significand;  // signed, 7 fraction bits
  int exponent;
};

Factor split(std::uint16_t bits) {
  const int field = bits >> 7 & 255;
  const int significand = (field == 0 ? 0 : 128) + (bits & 127);
  return {bits & 0x8000 ? -significand : significand, field == 0 ? -126 : field - 127};
}

// arXiv 2511.10909: `count` products and c are brought to the largest exponent, cut to 25 fraction
// bits, added, and the sum is cut to a float. Products that are zero have no say in the exponent.
float modelled(const std::uint16_t* a, const std::uint16_t* b, float c, int count) {
  std::uint32_t c_bits;
  std::memcpy(&c_bits, &c, 4);
  const int c_field = static_cast<int>(c_bits >> 23 & 255);
  const int c_exponent = c_field == 0 ? -126 : c_field - 127;
  const std::int64_t c_size = (c_field == 0 ? 0 : 1 << 23) + (c_bits & 0x7fffff);
  int largest = c_exponent;
  for (int i = 0; i < count; ++i) {
    const Factor x = split(a[i]);
    const Factor y = split(b[i]);
    if (x.significand * y.significand != 0) largest = std::max(largest, x.exponent + y.exponent);
  }
  const auto cut = [&](std::int64_t size, int exponent) {
    return largest - exponent > 62 ? 0 : size >> (largest - exponent);
  };
  std::int64_t sum = cut(c_size << 2, c_exponent) * (c_bits >> 31 ? -1 : 1);
  for (int i = 0; i < count; ++i) {
    const Factor x = split(a[i]);
    const Factor y = split(b[i]);
    const std::int64_t product = x.significand * y.significand;
    const std::int64_t size = cut(std::abs(product) << 11, x.exponent + y.exponent);
    sum += product < 0 ? -size : size;
  }
  const std::int64_t size = std::abs(sum);
  if (size == 0) return 0.0F;
  int bits = 64 - __builtin_clzll(static_cast<unsigned long long>(size));
  const std::int64_t kept = bits > 24 ? size >> (bits - 24) << (bits - 24) : size;
  return static_cast<float>(std::ldexp(static_cast<double>(sum < 0 ? -kept : kept), largest - 25));
}

// Factors whose exponents are spread over `spread` values around 0, and sums of the same size.
void compare(cudaStream_t stream, int spread, double zeros) {
  std::mt19937 random(7 + spread);
  std::vector<std::uint16_t> a(kTiles * kRows * kDepth);
  std::vector<std::uint16_t> b(kTiles * kCols * kDepth);
  std::vector<float> c(kTiles * kRows * kCols);
  const auto number = [&](int range) {
    const int exponent =
        127 - range / 2 + static_cast<int>(random() % static_cast<unsigned>(range));
    return (random() & 0x807fffffU) | static_cast<std::uint32_t>(exponent) << 23;
  };
  const auto factor = [&] {
    return random() < zeros * 4294967296.0 ? std::uint16_t{0}
                                           : static_cast<std::uint16_t>(number(spread) >> 16);
  };
  for (auto& value : a) value = factor();
  for (auto& value : b) value = factor();
  for (float& value : c) {
    const std::uint32_t bits = number(2 * spread);
    std::memcpy(&value, &bits, 4);
  }
  const CardArray<std::uint16_t> card_a(a.size());
  const CardArray<std::uint16_t> card_b(b.size());
  const CardArray<float> card_c(c.size());
  const CardArray<float> by_mma(c.size());
  const CardArray<float> by_wgmma(c.size());
  CHECK(cudaMemcpy(card_a.data(), a.data(), a.size() * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(card_b.data(), b.data(), b.size() * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(card_c.data(), c.data(), c.size() * 4, cudaMemcpyHostToDevice));
  both<<<kTiles, 128, 0, stream>>>(card_a.data(), card_b.data(), card_c.data(), by_mma.data(),
                                   by_wgmma.data());
  CHECK(cudaStreamSynchronize(stream));
  std::vector<float> mma(c.size());
  std::vector<float> wgmma(c.size());
  CHECK(cudaMemcpy(mma.data(), by_mma.data(), c.size() * 4, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(wgmma.data(), by_wgmma.data(), c.size() * 4, cudaMemcpyDeviceToHost));
  std::int64_t model = 0;
  std::int64_t halves = 0;
  std::int64_t instructions = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::uint16_t* row = a.data() + i / kCols * kDepth;
    const std::uint16_t* column = b.data() + (i / (kRows * kCols) * kCols + i % kCols) * kDepth;
    const auto differs = [](float x, float y) { return std::memcmp(&x, &y, 4) != 0; };
    if (differs(mma[i], modelled(row, column, c[i], 16)) && model++ == 0) {
      std::fprintf(stderr, "first difference: %a, model %a, c %a\n", mma[i],
                   modelled(row, column, c[i], 16), c[i]);
    }
    const float half = modelled(row, column, c[i], 8);
    if (differs(mma[i], modelled(row + 8, column + 8, half, 8))) ++halves;
    if (differs(mma[i], wgmma[i])) ++instructions;
  }
  say("F2",
      "\"sums\": %lld, \"exponents\": %d, \"zeros\": %.2f, \"unlike_model_of_16\": %lld, "
      "\"unlike_model_of_8_and_8\": %lld, \"mma_unlike_wgmma\": %lld",
      static_cast<long long>(c.size()), spread, zeros, static_cast<long long>(model),
      static_cast<long long>(halves), static_cast<long long>(instructions));
}

template <bool kIntegers>
__global__ void many_products(int rounds, float* out) {
  constexpr int kSums = 8;
  float sums[kSums][4] = {};
  int counts[kSums][4] = {};
  const unsigned a[4] = {threadIdx.x * 0x01010101U, 0x3f803f81U, 0x3f823f83U, 0x3f843f85U};
  const unsigned b[2] = {0x3f863f87U, 0x3f883f89U};
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      if (kIntegers) {
        mma_int8(counts[k], a, b);
      } else {
        mma_bf16(sums[k], a, b);
      }
    }
  }
  float total = 0;
  for (int k = 0; k < kSums; ++k) {
    for (int i = 0; i < 4; ++i) total += sums[k][i] + static_cast<float>(counts[k][i]);
  }
  if (total == 1234.5F) *out = total;
}

template <bool kIntegers>
double peak(cudaStream_t stream) {
  const CardArray<float> out(1);
  const int rounds = 20000;
  const int warps = 8;
  const double us = median_us(stream, 5, [&] {
    many_products<kIntegers><<<multiprocessors(), warps * 32, 0, stream>>>(rounds, out.data());
  });
  return 2.0 * 16 * 8 * (kIntegers ? 32 : 16) * 8 * rounds * warps * multiprocessors() / us / 1e6;
}

}  // namespace

void matrix_facts(cudaStream_t stream) {
  compare(stream, 4, 0);
  compare(stream, 16, 0.1);
  compare(stream, 60, 0.1);
  compare(stream, 120, 0.5);
  say("F9", "\"mma_sync_bf16_tflops\": %.0f, \"mma_sync_int8_tops\": %.0f", peak<false>(stream),
      peak<true>(stream));
}
