// Helpers that the programs of facts share. Each fact prints a line of JSON for each figure.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                       \
  do {                                                                                    \
    const cudaError_t error = (call);                                                     \
    if (error != cudaSuccess) {                                                           \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
      std::exit(1);                                                                       \
    }                                                                                     \
  } while (false)

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Memory of the card, given back at the end.
template <typename T>
class CardArray {
 public:
  explicit CardArray(std::int64_t count) { CHECK(cudaMalloc(&data_, count * sizeof(T))); }
  CardArray(const CardArray&) = delete;
  CardArray& operator=(const CardArray&) = delete;
  ~CardArray() { cudaFree(data_); }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

// Median microseconds of the stream's work, after two warm-ups.
template <typename Work>
double median_us(cudaStream_t stream, int repetitions, const Work& work) {
  cudaEvent_t begin;
  cudaEvent_t end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = -2; i < repetitions; ++i) {
    CHECK(cudaEventRecord(begin, stream));
    work();
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 0) times.push_back(milliseconds);
  }
  CHECK(cudaGetLastError());
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return 1000.0 * times[times.size() / 2];
}

// Like printf, as a line {"fact": "F1", ...}.
template <typename... Values>
void say(const char* fact, const char* format, Values... values) {
  std::printf("{\"fact\": \"%s\", ", fact);
  std::printf(format, values...);
  std::printf("}\n");
  std::fflush(stdout);
}

inline int multiprocessors() {
  int count = 0;
  CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

void memory_facts(cudaStream_t stream);    // F1, F6, F8, F10
void matrix_facts(cudaStream_t stream);    // F2, F9
void launch_facts(cudaStream_t stream);    // F3, F4, F7, F11
void exchange_facts(cudaStream_t stream);  // F5
