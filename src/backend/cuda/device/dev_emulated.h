// dev.h for the emulator: everything that touches memory or other threads is checked.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "backend/emulated/block.h"
#include "backend/emulated/emulated_tensor_core.h"
#include "tensor/dtype.h"

#define KAKEYA_DEVICE inline
#define KAKEYA_UNROLL
#define KAKEYA_NO_UNROLL
#define KAKEYA_UNROLL_SOME

namespace kakeya::cuda::dev {

inline constexpr int kWarp = emulated::kWarp;

using emulated::Place;
inline int thread() {
  return emulated::running()->thread();
}
inline int threads() {
  return emulated::running()->threads();
}
inline int lane() {
  return thread() % kWarp;
}
inline int warp() {
  return thread() / kWarp;
}
inline std::int64_t block_x() {
  return emulated::running()->block_x();
}
inline std::int64_t block_y() {
  return emulated::running()->block_y();
}

// Launches run one after the other, but a kernel that would start early is held to that.
inline void start_early() {
  emulated::running()->start_early();
}
inline void wait_for_previous() {
  emulated::running()->wait_for_previous();
}
inline void let_next_start() {
  emulated::running()->let_next_start();
}

inline void sync_block(Place place = Place::current()) {
  emulated::running()->sync_block(place);
}
inline void sync_warp(Place place = Place::current()) {
  emulated::running()->sync_warp(place);
}

template <int kCount>
void warp_sums(float (&values)[kCount], Place place = Place::current()) {
  emulated::running()->exchange(place, values, [](void* const* lanes) {
    float sums[kWarp][kCount];
    for (int other = kWarp / 2; other > 0; other /= 2) {
      for (int l = 0; l < kWarp; ++l) {
        const auto* mine = static_cast<const float*>(lanes[l]);
        const auto* theirs = static_cast<const float*>(lanes[l ^ other]);
        for (int i = 0; i < kCount; ++i) sums[l][i] = mine[i] + theirs[i];
      }
      for (int l = 0; l < kWarp; ++l) std::memcpy(lanes[l], sums[l], sizeof(sums[l]));
    }
  });
}

template <int kCount>
void warp_swap(float (&values)[kCount], int apart, Place place = Place::current()) {
  struct Offer {
    float values[kCount];
    int apart;
  } own;
  std::memcpy(own.values, values, sizeof(values));
  own.apart = apart;
  emulated::running()->exchange(place, &own, [](void* const* lanes) {
    float got[kWarp][kCount];
    for (int l = 0; l < kWarp; ++l) {
      const int other = l ^ static_cast<const Offer*>(lanes[l])->apart;
      std::memcpy(got[l], static_cast<const Offer*>(lanes[other])->values, sizeof(got[l]));
    }
    for (int l = 0; l < kWarp; ++l) {
      std::memcpy(static_cast<Offer*>(lanes[l])->values, got[l], sizeof(got[l]));
    }
  });
  std::memcpy(values, own.values, sizeof(values));
}

template <typename T, int kCount>
void of_lanes(T own, int first, T (&all)[kCount], Place place = Place::current()) {
  struct Offer {
    T own;
    int first;
    T all[kCount];
  } offer = {own, first, {}};
  emulated::running()->exchange(place, &offer, [](void* const* lanes) {
    for (int l = 0; l < kWarp; ++l) {
      auto& mine = *static_cast<Offer*>(lanes[l]);
      for (int i = 0; i < kCount; ++i) {
        mine.all[i] = static_cast<const Offer*>(lanes[mine.first + i])->own;
      }
    }
  });
  std::memcpy(all, offer.all, sizeof(all));
}

inline float warp_max(float value, Place place = Place::current()) {
  emulated::running()->exchange(place, &value, [](void* const* lanes) {
    float largest = *static_cast<const float*>(lanes[0]);
    for (int l = 1; l < kWarp; ++l) {
      const float theirs = *static_cast<const float*>(lanes[l]);
      largest = theirs > largest ? theirs : largest;
    }
    for (int l = 0; l < kWarp; ++l) *static_cast<float*>(lanes[l]) = largest;
  });
  return value;
}

inline std::uint32_t warp_most(std::uint32_t value, Place place = Place::current()) {
  emulated::running()->exchange(place, &value, [](void* const* lanes) {
    std::uint32_t most = 0;
    for (int l = 0; l < kWarp; ++l) {
      most = std::max(most, *static_cast<const std::uint32_t*>(lanes[l]));
    }
    for (int l = 0; l < kWarp; ++l) *static_cast<std::uint32_t*>(lanes[l]) = most;
  });
  return value;
}

template <typename T>
void hold(T& /*value*/) {}

inline std::uint32_t lanes_with(std::uint32_t value, Place place = Place::current()) {
  emulated::running()->exchange(place, &value, [](void* const* lanes) {
    std::uint32_t same[kWarp] = {};
    for (int l = 0; l < kWarp; ++l) {
      for (int other = 0; other < kWarp; ++other) {
        const bool is_same = *static_cast<const std::uint32_t*>(lanes[other]) ==
                             *static_cast<const std::uint32_t*>(lanes[l]);
        same[l] |= (is_same ? 1U : 0U) << other;
      }
    }
    for (int l = 0; l < kWarp; ++l) *static_cast<std::uint32_t*>(lanes[l]) = same[l];
  });
  return value;
}
inline int count_bits(std::uint32_t bits) {
  return std::popcount(bits);
}

inline int warp_total(int value, Place place = Place::current()) {
  emulated::running()->exchange(place, &value, [](void* const* lanes) {
    int total = 0;
    for (int l = 0; l < kWarp; ++l) total += *static_cast<const int*>(lanes[l]);
    for (int l = 0; l < kWarp; ++l) *static_cast<int*>(lanes[l]) = total;
  });
  return value;
}

template <int kCount>
void round_to_bf16(float (&values)[kCount]) {
  static_assert(kCount % 2 == 0);
  for (float& value : values) value = to_float(to_bfloat16(value));
}

inline void mma(float (&sums)[4],
                const std::uint32_t (&a)[4],
                const std::uint32_t (&b)[2],
                Place place = Place::current()) {
  emulated::Fragment own;
  std::memcpy(own.sums, sums, sizeof(sums));
  std::memcpy(own.a, a, sizeof(a));
  std::memcpy(own.b, b, sizeof(b));
  emulated::running()->exchange(place, &own, emulated::multiply_fragments);
  std::memcpy(sums, own.sums, sizeof(sums));
}

template <int kCount>
void integer_mma(int (&sums)[kCount][4],
                 const std::uint32_t (&a)[kCount][4],
                 const std::uint32_t (&b)[kCount][2],
                 int first,
                 Place place = Place::current()) {
  emulated::IntegerFragment own[kCount];
  for (int i = 0; i < kCount; ++i) {
    for (int& sum : own[i].sums) sum = first;
    std::memcpy(own[i].a, a[i], sizeof(a[i]));
    std::memcpy(own[i].b, b[i], sizeof(b[i]));
  }
  emulated::running()->exchange(
      place, own, [](void* const* lanes) { emulated::multiply_integers(lanes, kCount); });
  for (int i = 0; i < kCount; ++i) std::memcpy(sums[i], own[i].sums, sizeof(sums[i]));
}

template <int kCount>
void bf16_pairs(const float (&values)[kCount], std::uint32_t (&out)[kCount / 2]) {
  for (int i = 0; i < kCount / 2; ++i) {
    out[i] = to_bfloat16(values[2 * i]).bits |
             static_cast<std::uint32_t>(to_bfloat16(values[2 * i + 1]).bits) << 16;
  }
}

template <typename T>
class Global {
 public:
  explicit Global(T* address)
      : address_(address), bounds_(emulated::running()->bounds_of(address)) {}

  T load(std::int64_t index, Place place = Place::current()) const {
    emulated::running()->check_not_early("reads", place);
    return load_fresh(index, place);
  }
  std::remove_const_t<T> load_fresh(std::int64_t index, Place place = Place::current()) const {
    check(index, "reads", place);
    emulated::running()->check_old(address_ + index, sizeof(T), place);
    emulated::running()->check_seen(address_ + index, sizeof(T), place);
    emulated::running()->note_read_of_memory(address_ + index, sizeof(T));
    std::remove_const_t<T> value;
    std::memcpy(&value, address_ + index, sizeof(value));
    return value;
  }
  void store(std::int64_t index, T value, Place place = Place::current()) const {
    emulated::running()->check_not_early("writes", place);
    check(index, "writes", place);
    emulated::running()->note_written(address_ + index, sizeof(T));
    std::memcpy(address_ + index, &value, sizeof(value));
  }
  void prefetch(std::int64_t index, Place place = Place::current()) const {
    check(index, "reads", place);
  }
  void check(std::int64_t index, const char* what, Place place) const {
    const auto at =
        reinterpret_cast<std::uintptr_t>(address_) + static_cast<std::uintptr_t>(index) * sizeof(T);
    if (at < bounds_.begin || at + sizeof(T) > bounds_.end || at % alignof(T) != 0) {
      emulated::running()->refuse_access(what, at, sizeof(T), alignof(T), bounds_, place);
    }
  }

 private:
  T* address_;
  emulated::Bounds bounds_;
};

inline void publish_writes() {
  emulated::running()->publish_writes();
}
template <typename T>
T load_of_host(const T* address, Place place = Place::current()) {
  return Global<const T>(address).load(0, place);
}
inline void tell_host(std::int64_t* address, std::int64_t number, Place place = Place::current()) {
  Global<std::int64_t>(address).store(0, number, place);
}

inline bool last_of(std::uint32_t* counter, std::uint32_t count, Place place = Place::current()) {
  Global<std::uint32_t>(counter).check(0, "counts", place);
  return emulated::running()->last_of(counter, count, place);
}

template <typename T>
class Shared {
  static_assert(sizeof(T) == sizeof(std::uint32_t));

 public:
  explicit Shared(int first_word) : first_word_(first_word) {}
  T load(int index, Place place = Place::current()) const {
    return std::bit_cast<T>(emulated::running()->read_shared(first_word_ + index, place));
  }
  void store(int index, T value, Place place = Place::current()) const {
    emulated::running()->write_shared(first_word_ + index, std::bit_cast<std::uint32_t>(value),
                                      place);
  }
  template <typename Many>
  Many load_as(int index, Place place = Place::current()) const {
    std::uint32_t words[sizeof(Many) / sizeof(T)];
    check_multiple(index, std::size(words), place);
    for (std::size_t i = 0; i < std::size(words); ++i) {
      words[i] = emulated::running()->read_shared(first_word_ + index + static_cast<int>(i), place);
    }
    return std::bit_cast<Many>(words);
  }
  template <typename Many>
  void store_as(int index, const Many& value, Place place = Place::current()) const {
    std::uint32_t words[sizeof(Many) / sizeof(T)];
    check_multiple(index, std::size(words), place);
    std::memcpy(words, &value, sizeof(words));
    for (std::size_t i = 0; i < std::size(words); ++i) {
      emulated::running()->write_shared(first_word_ + index + static_cast<int>(i), words[i], place);
    }
  }

 private:
  void check_multiple(int index, std::size_t words, Place place) const {
    emulated::running()->check_multiple(first_word_ + index, static_cast<int>(words), place);
  }

  int first_word_;
};

class CopyPolicy {
 public:
  explicit CopyPolicy(bool /*once*/) {}
};
template <typename T>
void begin_copy(int word,
                const T* from,
                std::int64_t index,
                const CopyPolicy& /*policy*/,
                Place place = Place::current()) {
  static_assert(sizeof(T) == emulated::Block::kCopyWords * sizeof(std::uint32_t));
  Global<const T>(from).check(index, "copies", place);
  emulated::running()->begin_copy(word, from + index, place);
}
inline void end_copies() {
  emulated::running()->end_copies();
}
template <int kLater>
void await_copies() {
  emulated::running()->await_copies(kLater);
}
inline void floats_of_halves(std::uint32_t pair, float (&out)[2]) {
  out[0] = half_to_float(static_cast<std::uint16_t>(pair));
  out[1] = half_to_float(static_cast<std::uint16_t>(pair >> 16));
}

// The rows of four matrices: of each the word in which it begins, as its lane names it.
struct MatrixRows {
  int own;
  int all[kWarp];

  MatrixRows(int row_word, Place place) : own(row_word), all{} {
    emulated::running()->check_multiple(row_word, 4, place);
    emulated::running()->exchange(place, this, [](void* const* lanes) {
      for (int l = 0; l < kWarp; ++l) {
        for (int row = 0; row < kWarp; ++row) {
          static_cast<MatrixRows*>(lanes[l])->all[row] =
              static_cast<const MatrixRows*>(lanes[row])->own;
        }
      }
    });
  }
  // Elements 2 `pair` and the next one of a row of a matrix.
  std::uint32_t load(int matrix, int row, int pair, Place place) const {
    return emulated::running()->read_shared(all[matrix * 8 + row] + pair, place);
  }
};

inline void load_matrices(int row_word, std::uint32_t (&pairs)[4], Place place = Place::current()) {
  const MatrixRows rows(row_word, place);
  for (int i = 0; i < 4; ++i) pairs[i] = rows.load(i, lane() / 4, lane() % 4, place);
}
inline void load_matrices_turned(int row_word,
                                 std::uint32_t (&pairs)[4],
                                 Place place = Place::current()) {
  const MatrixRows rows(row_word, place);
  const int column = lane() / 4;
  const auto element = [&](int matrix, int row) {
    return rows.load(matrix, row, column / 2, place) >> (column % 2 * 16) & 0xffffU;
  };
  for (int i = 0; i < 4; ++i) {
    pairs[i] = element(i, lane() % 4 * 2) | element(i, lane() % 4 * 2 + 1) << 16;
  }
}

inline float fma(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double fma(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline float sqrt(float x) {
  return std::sqrt(x);
}
inline float round_even(float x) {
  return std::nearbyint(x);
}
inline double round_even(double x) {
  return std::nearbyint(x);
}
inline std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline double double_of(std::uint64_t bits) {
  return std::bit_cast<double>(bits);
}

}  // namespace kakeya::cuda::dev
