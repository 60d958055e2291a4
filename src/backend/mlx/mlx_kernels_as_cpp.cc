// The kernels' texts as C++. Each thread of a simdgroup is a fiber, so that its lanes meet as they
// do on a GPU; an index is checked against the array's size.
#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/emulated/block.h"
#include "backend/mlx/mlx_kernels.h"
#include "backend/mlx/mlx_space.h"
#include "base/random.h"
#include "tensor/dtype.h"

namespace kakeya::mlx {
namespace {

using emulated::kWarp;

// The functions that Metal's library has under these names.
namespace metal {
namespace precise {
using std::tanh;
}
using std::exp;
using std::max;
using std::min;

// Combines what all lanes have into what each of them gets. Of sums a GPU's order is not known.
template <typename T, typename Combine>
T over_lanes(T own, const Combine& /*combine*/) {
  emulated::running()->exchange(emulated::Place::current(), &own, [](void* const* lanes) {
    T all = *static_cast<T*>(lanes[0]);
    for (int lane = 1; lane < kWarp; ++lane) all = Combine()(all, *static_cast<T*>(lanes[lane]));
    for (int lane = 0; lane < kWarp; ++lane) *static_cast<T*>(lanes[lane]) = all;
  });
  return own;
}

float simd_sum(float own) {
  return over_lanes(own, std::plus<float>());
}
float simd_max(float own) {
  return over_lanes(own, [](float a, float b) { return std::fmax(a, b); });
}
uint simd_min(uint own) {
  return over_lanes(own, [](uint a, uint b) { return std::min(a, b); });
}
}  // namespace metal

struct Array {
  std::byte* data;
  std::uint64_t size;
  mx::Dtype dtype;
  mx::Shape shape;
};

struct Uint3 {
  uint x;
  uint y;
  uint z;
};

// The arguments of one thread.
struct Call {
  const KernelText& text;
  std::vector<Array> inputs;
  std::vector<Array> outputs;
  KernelLaunch launch;
  Uint3 place = {};  // the simdgroup's among them, or the thread's

  uint constant(std::size_t index) const {
    return std::visit([](auto value) { return static_cast<uint>(value); },
                      launch.constants.at(index).second);
  }
};

void check_index(const Call& call, const std::string& name, uint index, std::uint64_t size) {
  if (index < size) return;
  std::fprintf(stderr, "kernel %s at (%u, %u, %u): %s[%u] of %llu\n", call.text.name.c_str(),
               call.place.x, call.place.y, call.place.z, name.c_str(), index,
               static_cast<unsigned long long>(size));
  std::abort();
}

template <typename T>
class Read {
 public:
  Read(const Call& call, std::size_t index)
      : call_(call), index_(index), array_(call.inputs.at(index)) {}
  T operator[](uint i) const {
    check_index(call_, call_.text.inputs[index_], i, array_.size);
    return reinterpret_cast<const T*>(array_.data)[i];
  }

 private:
  const Call& call_;
  std::size_t index_;
  const Array& array_;
};

// f32 or bf16.
class Numbers {
 public:
  Numbers(const Call& call, std::size_t index)
      : is_short_(call.inputs.at(index).dtype == mx::bfloat16),
        f32_(call, index),
        bf16_(call, index) {}
  float operator[](uint i) const { return is_short_ ? to_float(bf16_[i]) : f32_[i]; }

 private:
  bool is_short_;
  Read<float> f32_;
  Read<BFloat16> bf16_;
};

template <typename T>
class Write {
 public:
  Write(const Call& call, std::size_t index)
      : call_(call), index_(index), array_(call.outputs.at(index)) {}
  T& operator[](uint i) const {
    check_index(call_, call_.text.outputs[index_], i, array_.size);
    return reinterpret_cast<T*>(array_.data)[i];
  }

 private:
  const Call& call_;
  std::size_t index_;
  const Array& array_;
};

class Lengths {
 public:
  Lengths(const Call& call, std::size_t index) : shape_(call.inputs.at(index).shape) {}
  uint operator[](uint axis) const { return static_cast<uint>(shape_.at(axis)); }

 private:
  const mx::Shape& shape_;
};

uint lane_index() {
  return static_cast<uint>(emulated::running()->thread());
}

void route_as_cpp(const Call& call) {
  const Read<float> logits(call, 0);
  const Lengths logits_shape(call, 0);
  const Read<float> scales(call, 1);
  const Write<uint> experts(call, 0);
  const Write<float> weights(call, 1);
  const uint top_k = call.constant(0);
  const Uint3 threadgroup_position_in_grid = call.place;
  const uint thread_index_in_simdgroup = lane_index();
#include "backend/mlx/kernels/route.metal"
}

void rotation_as_cpp(const Call& call) {
  const Read<float> x(call, 0);
  const Lengths x_shape(call, 0);
  const Read<float> cos(call, 1);
  const Lengths cos_shape(call, 1);
  const Read<float> sin(call, 2);
  const Write<float> out(call, 0);
  const Uint3 thread_position_in_grid = call.place;
#include "backend/mlx/kernels/rotation.metal"
}

void gate_as_cpp(const Call& call) {
  const Read<float> x(call, 0);
  const Read<float> other(call, 1);
  const Write<float> out(call, 0);
  const bool is_silu = call.constant(0) != 0;
  const Uint3 thread_position_in_grid = call.place;
#include "backend/mlx/kernels/gate.metal"
}

void weighted_sum_as_cpp(const Call& call) {
  const Read<float> x(call, 0);
  const Lengths x_shape(call, 0);
  const Read<float> factors(call, 1);
  const Write<float> out(call, 0);
  const Uint3 thread_position_in_grid = call.place;
#include "backend/mlx/kernels/weighted_sum.metal"
}

void scaled_add_as_cpp(const Call& call) {
  const Read<float> a(call, 0);
  const Read<float> b(call, 1);
  const float scale = Read<float>(call, 2)[0];
  const Write<float> out(call, 0);
  const Uint3 thread_position_in_grid = call.place;
#include "backend/mlx/kernels/scaled_add.metal"
}

template <uint pairs>
void attention_span_as_cpp(const Call& call) {
  const Read<float> queries(call, 0);
  const Lengths queries_shape(call, 0);
  const Numbers keys(call, 1);
  const Numbers values(call, 2);
  const Lengths values_shape(call, 2);
  const Read<float> k_norm(call, 3);
  const Read<float> cos(call, 4);
  const Read<float> sin(call, 5);
  const Read<bool> seen(call, 6);
  const Read<int> spans(call, 7);
  const Lengths spans_shape(call, 7);
  const float scale = Read<float>(call, 8)[0];
  const Write<float> sums(call, 0);
  const Write<float> parts(call, 1);
  const bool has_keys = call.constant(1) != 0;
  const Uint3 threadgroup_position_in_grid = call.place;
  const uint thread_index_in_simdgroup = lane_index();
#include "backend/mlx/kernels/attention_span.metal"
}

void join_spans_as_cpp(const Call& call) {
  const Read<float> sums(call, 0);
  const Lengths sums_shape(call, 0);
  const Read<float> parts(call, 1);
  const Write<float> out(call, 0);
  const Uint3 thread_position_in_grid = call.place;
#include "backend/mlx/kernels/join_spans.metal"
}

using Function = void (*)(const Call& call);

Function attention_span_of(const KernelLaunch& launch) {
  static constexpr Function kFunctions[] = {attention_span_as_cpp<1>, attention_span_as_cpp<2>,
                                            attention_span_as_cpp<3>, attention_span_as_cpp<4>,
                                            attention_span_as_cpp<5>, attention_span_as_cpp<6>,
                                            attention_span_as_cpp<7>, attention_span_as_cpp<8>};
  return kFunctions[std::get<int>(launch.constants.at(0).second) - 1];
}

Function function_of(Kernel kernel, const KernelLaunch& launch) {
  switch (kernel) {
    case Kernel::kRoute:
      return route_as_cpp;
    case Kernel::kRotation:
      return rotation_as_cpp;
    case Kernel::kGate:
      return gate_as_cpp;
    case Kernel::kWeightedSum:
      return weighted_sum_as_cpp;
    case Kernel::kScaledAdd:
      return scaled_add_as_cpp;
    case Kernel::kAttentionSpan:
      return attention_span_of(launch);
    case Kernel::kJoinSpans:
      break;
  }
  return join_spans_as_cpp;
}

// Indices are checked without it.
class AnyMemory final : public emulated::DeviceMemory {
 public:
  emulated::Bounds bounds_of(const void* /*address*/) const override { return {}; }
};

struct Running {
  Function function;
  const Call& call;
};

void run_simdgroup(emulated::Block& block, Function function, const Call& call, SequenceRng& rng) {
  const Running running{function, call};
  const emulated::Block::Work work{[](const void* parameters) {
                                     const auto& of = *static_cast<const Running*>(parameters);
                                     of.function(of.call);
                                   },
                                   &running, kWarp, 0};
  const std::string failure = block.run(work, 0, 0, rng);
  if (failure.empty()) return;
  std::fprintf(stderr, "kernel %s: %s\n", call.text.name.c_str(), failure.c_str());
  std::abort();
}

void run_all(Function function, Call& call) {
  static const AnyMemory kMemory;
  thread_local emulated::Block block(kMemory);  // keeps its threads' stacks
  SequenceRng order(0);
  for (int z = 0; z < call.launch.z; ++z) {
    for (int y = 0; y < call.launch.y; ++y) {
      for (int x = 0; x < call.launch.x; ++x) {
        call.place = {static_cast<uint>(x), static_cast<uint>(y), static_cast<uint>(z)};
        if (call.launch.are_simdgroups) {
          run_simdgroup(block, function, call, order);
        } else {
          function(call);
        }
      }
    }
  }
}

class CppKernel final : public mx::Primitive {
 public:
  CppKernel(mx::Stream stream, Kernel kernel, KernelLaunch launch)
      : Primitive(stream), kernel_(kernel), launch_(std::move(launch)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    Call call{text_of(kernel_), {}, {}, launch_};
    const auto array_of = [](const mx::array& array) {
      return Array{const_cast<std::byte*>(array.data<std::byte>()), array.size(), array.dtype(),
                   array.shape()};
    };
    for (const mx::array& input : inputs) call.inputs.push_back(array_of(input));
    for (mx::array& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
      call.outputs.push_back(array_of(output));
    }
    mx::cpu::get_command_encoder(stream()).dispatch(
        [function = function_of(kernel_, launch_), call = std::move(call)]() mutable {
          run_all(function, call);
        });
  }
  void eval_gpu(const std::vector<mx::array>& /*inputs*/,
                std::vector<mx::array>& /*outputs*/) override {
    throw std::logic_error("this primitive is for the CPU device alone");
  }
  const char* name() const override { return text_of(kernel_).name.c_str(); }

 private:
  Kernel kernel_;
  KernelLaunch launch_;
};

}  // namespace

std::vector<mx::array> run_as_cpp(Kernel kernel,
                                  const std::vector<mx::array>& inputs,
                                  const KernelOutputs& outputs,
                                  const KernelLaunch& launch,
                                  mx::Stream stream) {
  std::vector<mx::array> rows;
  for (const mx::array& input : inputs) rows.push_back(mx::contiguous(input, false, stream));
  return mx::array::make_arrays(outputs.shapes, outputs.dtypes,
                                std::make_shared<CppKernel>(stream, kernel, launch), rows);
}

}  // namespace kakeya::mlx
