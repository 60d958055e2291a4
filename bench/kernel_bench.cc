#include "bench/kernel_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>

#include "backend/backend.h"
#include "backend/cpu/instruction_set.h"
#include "backend/cpu/probe.h"
#include "backend/host_rows.h"
#include "base/status.h"
#include "kv/kv_cache.h"
#include "tensor/random_weights.h"

namespace kakeya::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kHidden = 2816;
constexpr std::int64_t kVocabulary = 262144;
constexpr std::int64_t kExperts = 128;
constexpr std::int64_t kExpertWidth = 704;
constexpr std::int64_t kTopK = 8;
constexpr std::int64_t kMaxRows = 512;

std::vector<float> random_floats(std::int64_t count) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(generator);
  return values;
}

// A tensor of small bf16 or f32 numbers, or of random blocks; the values hardly matter, their
// distinct memory does.
struct Source {
  Source(Shape shape, DType dtype) {
    const auto count = static_cast<std::size_t>(num_elements(shape));
    bytes.resize(count * dtype_bytes(dtype));
    std::uint32_t state = 12345;
    for (std::size_t i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      const float value = (static_cast<float>(state >> 16) - 32768.0F) * 0x1p-20F;
      if (dtype == DType::kBF16) {
        reinterpret_cast<BFloat16*>(bytes.data())[i] = to_bfloat16(value);
      } else {
        reinterpret_cast<float*>(bytes.data())[i] = value;
      }
    }
    view = {bytes.data(), std::move(shape), dtype, "bench"};
  }
  Source(Shape shape, QuantizedFormat format) {
    view = {.shape = std::move(shape), .name = "bench", .quantization = format};
    bytes.resize(view.bytes());
    view.data = bytes.data();
    SequenceRng rng(12345);
    fill_random_blocks(format, /*deviation=*/0.02F, rng, bytes);
  }
  std::vector<std::byte> bytes;
  TensorView view;
};

class KernelBench {
 public:
  KernelBench(const KernelBenchOptions& options, Backend& backend, const cpu::Kernels& kernels)
      : options_(options),
        backend_(backend),
        pool_({.num_threads = backend.num_threads()}),
        rows_(options.rows.empty() ? std::vector<int>{1, 2, 4, 8, 16, 32, 128, 512}
                                   : options.rows) {
    report_.backend = backend.name();
    report_.num_threads = backend.num_threads();
    report_.bf16_peak_gflops = cpu::measure_bf16_peak(pool_, kernels, 0.2);
    report_.f32_peak_gflops = cpu::measure_f32_peak(pool_, kernels, 0.2);
  }

  Status run() {
    ExecutorPlan plan;
    plan.max_rows = kMaxRows;
    plan.max_matmul_width = 8192;
    plan.max_query_width = 8192;
    plan.max_head_dim = 512;
    plan.top_k_experts = kTopK;
    plan.num_experts = kExperts;
    plan.hidden_size = kHidden;
    plan.moe_intermediate_size = kExpertWidth;
    KAKEYA_ASSIGN_OR_RETURN(executor_, backend_.create_executor(plan, budget_));
    x_ = random_floats(kMaxRows * 8192);
    KAKEYA_TRY(bench_matmul(kHidden, 4096, DType::kBF16, Compute::kFast, "bf16"));
    KAKEYA_TRY(bench_matmul(kHidden, 4096, DType::kBF16, Compute::kF32, "bf16 exact"));
    KAKEYA_TRY(bench_matmul(kHidden, 4096, DType::kF32, Compute::kF32, "f32"));
    KAKEYA_TRY(bench_matmul(8192, kHidden, DType::kBF16, Compute::kFast, "bf16"));
    KAKEYA_TRY(bench_gated());
    KAKEYA_TRY(bench_head());
    KAKEYA_TRY(bench_experts());
    KAKEYA_TRY(bench_attention());
    KAKEYA_TRY(bench_loading());
    return {};
  }

  KernelReport take_report() { return std::move(report_); }

 private:
  bool wanted(const std::string& name) const {
    return options_.filter.empty() || name.find(options_.filter) != std::string::npos;
  }

  // Times call(i), i = 0, 1, ..., and adds a line to the report. bytes(i) are those of one call.
  void measure(const std::string& name,
               int rows,
               double flops,
               bool fast,
               const std::function<void(int)>& call,
               const std::function<double(int)>& bytes) {
    const double bandwidth = cpu::measure_read_bandwidth(pool_, 0.2);
    for (int i = 0; i < 2; ++i) call(i);
    std::vector<double> times;
    double all_bytes = 0.0;
    const Clock::time_point begin = Clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    for (int i = 2; times.size() < 5 || elapsed() < options_.seconds; ++i) {
      const Clock::time_point start = Clock::now();
      call(i);
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      all_bytes += bytes(i);
    }
    const auto calls = static_cast<double>(times.size());
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                     times.end());
    const double seconds = times[times.size() / 2];
    KernelResult result;
    result.name = name;
    result.rows = rows;
    result.milliseconds = seconds * 1e3;
    result.bytes = all_bytes / calls;
    result.gigabytes_per_second = result.bytes / seconds * 1e-9;
    result.bandwidth_percent =
        bandwidth > 0.0 ? 100.0 * result.gigabytes_per_second / bandwidth : 0.0;
    result.gflops = flops / seconds * 1e-9;
    const double peak = fast ? report_.bf16_peak_gflops : report_.f32_peak_gflops;
    result.peak_percent = 100.0 * result.gflops / peak;
    report_.results.push_back(result);
  }

  // Makes as many copies as it takes to be well beyond the last-level cache.
  Result<std::vector<std::unique_ptr<Matrix>>> copies(const Source& source, Compute compute) {
    const double wanted_bytes =
        8.0 * static_cast<double>(std::max<std::size_t>(cpu::last_level_cache_bytes(), 64U << 20));
    const auto one = static_cast<double>(backend_.matrix_bytes(source.view, compute));
    std::vector<std::unique_ptr<Matrix>> matrices;
    while (static_cast<double>(matrices.size()) * one < wanted_bytes) {
      KAKEYA_ASSIGN_OR_RETURN(auto matrix, backend_.load_matrix(source.view, compute, budget_));
      matrices.push_back(std::move(matrix));
    }
    return matrices;
  }

  Status bench_matmul(std::int64_t columns,
                      std::int64_t outputs,
                      DType dtype,
                      Compute compute,
                      const std::string& kind) {
    const std::string name = fmt::format("matmul {}x{} {}", columns, outputs, kind);
    if (!wanted(name)) return {};
    const Source source({outputs, columns}, dtype);
    KAKEYA_ASSIGN_OR_RETURN(const auto matrices, copies(source, compute));
    std::vector<float> out(static_cast<std::size_t>(kMaxRows * outputs));
    const double bytes = static_cast<double>(source.bytes.size());
    for (const int rows : rows_) {
      const double flops = 2.0 * rows * static_cast<double>(columns * outputs);
      measure(
          name, rows, flops, dtype == DType::kBF16 && compute == Compute::kFast,
          [&](int i) {
            executor_->matmul({device(x_.data()), rows, columns},
                              *matrices[static_cast<std::size_t>(i) % matrices.size()],
                              {device(out.data()), rows, outputs});
          },
          [&](int) { return bytes; });
    }
    return {};
  }

  Status bench_gated() {
    constexpr std::int64_t kWidth = 2112;
    const std::string name = fmt::format("gated_matmul {}x{} bf16", kHidden, kWidth);
    if (!wanted(name)) return {};
    const Source source({kWidth, kHidden}, DType::kBF16);
    KAKEYA_ASSIGN_OR_RETURN(const auto gates, copies(source, Compute::kFast));
    KAKEYA_ASSIGN_OR_RETURN(const auto ups, copies(source, Compute::kFast));
    std::vector<float> out(static_cast<std::size_t>(kMaxRows * kWidth));
    for (const int rows : rows_) {
      measure(
          name, rows, 4.0 * rows * static_cast<double>(kWidth * kHidden), true,
          [&](int i) {
            const std::size_t at = static_cast<std::size_t>(i) % gates.size();
            executor_->gated_matmul({device(x_.data()), rows, kHidden}, *gates[at], *ups[at],
                                    GateActivation::kGeluTanh, {device(out.data()), rows, kWidth});
          },
          [&](int) { return 2.0 * static_cast<double>(source.bytes.size()); });
    }
    return {};
  }

  Status bench_head() {
    const std::string name = fmt::format("head {}x{} bf16", kHidden, kVocabulary);
    if (!wanted(name)) return {};
    const Source source({kVocabulary, kHidden}, DType::kBF16);
    KAKEYA_ASSIGN_OR_RETURN(const auto matrix,
                            backend_.load_matrix(source.view, Compute::kFast, budget_));
    const double bytes = static_cast<double>(source.bytes.size());
    std::vector<float> out(static_cast<std::size_t>(kVocabulary));
    measure(
        name, 1, 2.0 * static_cast<double>(kVocabulary * kHidden), true,
        [&](int) {
          executor_->matmul({device(x_.data()), 1, kHidden}, *matrix,
                            {device(out.data()), 1, kVocabulary});
        },
        [&](int) { return bytes; });
    measure(
        "softcap 262144", 1, 0.0, false,
        [&](int) {
          executor_->softcap({device(out.data()), 1, kVocabulary}, 30.0F);
        },
        [&](int) { return 8.0 * kVocabulary; });
    return {};
  }

  Status bench_experts() {
    const std::string name =
        fmt::format("experts {} of {}x({},{}) bf16", kTopK, kExperts, kExpertWidth, kHidden);
    if (!wanted(name)) return {};
    const Source wide({kExperts, kExpertWidth, kHidden}, DType::kBF16);
    const Source tall({kExperts, kHidden, kExpertWidth}, DType::kBF16);
    KAKEYA_ASSIGN_OR_RETURN(const auto gate,
                            backend_.load_matrix(wide.view, Compute::kFast, budget_));
    KAKEYA_ASSIGN_OR_RETURN(const auto up,
                            backend_.load_matrix(wide.view, Compute::kFast, budget_));
    KAKEYA_ASSIGN_OR_RETURN(const auto down,
                            backend_.load_matrix(tall.view, Compute::kFast, budget_));
    std::vector<float> out(static_cast<std::size_t>(kMaxRows * kHidden));
    const double expert_bytes = 3.0 * static_cast<double>(wide.bytes.size()) / kExperts;
    for (const int rows : rows_) {
      const double flops = 6.0 * rows * static_cast<double>(kTopK * kExpertWidth * kHidden);
      measure(
          name, rows, flops, true,
          [&](int i) {
            choose_experts(i, rows);
            executor_->experts({device(x_.data()), rows, kHidden},
                               {gate.get(), up.get(), down.get()},
                               {device(chosen_.data()), device(weights_.data()), kTopK},
                               GateActivation::kGeluTanh, {device(out.data()), rows, kHidden});
          },
          [&](int i) {
            choose_experts(i, rows);
            std::vector<bool> used(kExperts);
            for (const std::int32_t e : chosen_) used[static_cast<std::size_t>(e)] = true;
            return expert_bytes * static_cast<double>(std::count(used.begin(), used.end(), true));
          });
    }
    return {};
  }

  // Independent random experts for each row; consecutive calls of one row never share any.
  void choose_experts(int call, int rows) {
    std::vector<std::int32_t> all(kExperts);
    for (std::size_t e = 0; e < all.size(); ++e) all[e] = static_cast<std::int32_t>(e);
    constexpr int kCalls = kExperts / kTopK;
    std::mt19937 generator(static_cast<unsigned>(call / kCalls));
    chosen_.clear();
    for (int t = 0; t < rows; ++t) {
      std::shuffle(all.begin(), all.end(), generator);
      const auto begin = all.begin() + (call % kCalls) * kTopK;
      chosen_.insert(chosen_.end(), begin, begin + kTopK);
    }
    weights_.assign(chosen_.size(), 1.0F / kTopK);
  }

  // A weight is brought into the form that products read: memory allocated, read and written.
  Status bench_loading() {
    KAKEYA_TRY(bench_loading_of(DType::kBF16, "bf16"));
    for (const QuantizedFormat format : {QuantizedFormat::kQ80, QuantizedFormat::kQ40,
                                         QuantizedFormat::kQ4K, QuantizedFormat::kQ6K}) {
      KAKEYA_TRY(bench_loading_of(format, quantized_format_name(format)));
    }
    return {};
  }

  template <typename Type>
  Status bench_loading_of(Type type, std::string_view type_name) {
    constexpr std::int64_t kOutputs = 8192;
    const std::string name = fmt::format("loading {}x{} {}", kOutputs, kHidden, type_name);
    if (!wanted(name)) return {};
    const Source source({kOutputs, kHidden}, type);
    Status status;
    measure(
        name, 1, 0.0, false,
        [&](int) {
          const auto matrix = backend_.load_matrix(source.view, Compute::kFast, budget_);
          if (!matrix) status = Unexpected(matrix.error());
        },
        [&](int) {
          return static_cast<double>(source.bytes.size() +
                                     backend_.matrix_bytes(source.view, Compute::kFast));
        });
    return status;
  }

  struct CachedRows {
    std::int64_t heads, kv_heads, head_dim, window, context;
    KvFormat format;
    bool one_vector = false;

    std::string name() const {
      return fmt::format("attention {}/{} heads of {} over {} {}{}", heads, kv_heads, head_dim,
                         window == 0 ? context : window, kv_format_name(format),
                         one_vector ? " vectors" : "");
    }
  };

  // Sliding and full layers of the 26B shape; "vectors": one is stored instead of key and value.
  Status bench_attention() {
    for (const KvFormat format :
         {KvFormat::kBf16, KvFormat::kF32, KvFormat::kInt8, KvFormat::kInt4, KvFormat::kE8}) {
      for (const CachedRows& rows :
           {CachedRows{16, 8, 256, 1024, 4096, format}, CachedRows{16, 2, 512, 0, 16384, format},
            CachedRows{16, 2, 512, 0, 16384, format, true}}) {
        if (!wanted(rows.name())) continue;
        for (const int count : {1, 8, 16}) KAKEYA_TRY(bench_attention_rows(rows, count));
        if (rows.window != 0) KAKEYA_TRY(bench_attention_rows(rows, 512));
      }
    }
    return {};
  }

  Status bench_attention_rows(const CachedRows& cached, int rows) {
    const std::int64_t slots = cached.context + kMaxRows;
    KvRows kv = {.format = cached.format,
                 .capacity = slots,
                 .num_kv_heads = cached.kv_heads,
                 .head_dim = cached.head_dim};
    // In blocks of keys and values, as in a session.
    const BlockLayout layout(slots, (cached.one_vector ? 1 : 2) * kv.slot_bytes());
    kv.block_slots = layout.block_slots;
    const auto bytes_of_one = static_cast<std::size_t>(layout.blocks * layout.block_bytes);
    // Several layers' worth of keys and values, so that none is found in a cache.
    const std::size_t layers =
        rows <= 16 ? (4 * cpu::last_level_cache_bytes() / bytes_of_one) + 1 : 1;
    KAKEYA_ASSIGN_OR_RETURN(const Buffer memory,
                            budget_.allocate(MemoryClass::kKvFull, layers * bytes_of_one));
    std::memset(memory.data(), 0x3c, memory.size());
    std::vector<DevicePointer<std::byte>> keys;
    std::vector<DevicePointer<std::byte>> values;
    for (std::size_t at = 0; at < memory.size();
         at += static_cast<std::size_t>(layout.block_bytes)) {
      keys.push_back(device(memory.data() + at));
      values.push_back(keys.back() + (cached.one_vector ? 0 : kv.block_slots * kv.slot_bytes()));
    }
    const std::vector<float> k_norm(static_cast<std::size_t>(cached.head_dim), 1.0F);
    // A quarter of the dimensions rotates, as in the published models.
    const std::vector<float> frequencies(static_cast<std::size_t>(cached.head_dim / 8), 0.1F);
    const std::int64_t width = cached.heads * cached.head_dim;
    std::vector<float> out(static_cast<std::size_t>(rows * width));
    const std::int64_t seen = cached.window == 0 ? cached.context : cached.window;
    const double bytes =
        (cached.one_vector ? 1.0 : 2.0) * static_cast<double>((seen + rows - 1) * kv.slot_bytes());
    const double flops = 4.0 * rows * static_cast<double>(seen * width);
    std::vector<KvLayer> table;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::size_t first = layer * static_cast<std::size_t>(layout.blocks);
      kv.keys = cached.one_vector ? nullptr : keys.data() + first;
      kv.values = values.data() + first;
      table.push_back({.rows = kv, .window = cached.window});
    }
    const AttentionSettings settings{
        .scale = 0.01F,
        .compute = Compute::kFast,
        .derivation = {.k_norm = device(k_norm.data()),
                       .inverse_frequencies = device_vector(frequencies)}};
    const auto batch = BatchBuilder::one_of_rows(rows, cached.context - 1, table);
    executor_->begin(batch.batch());
    measure(
        cached.name(), rows, flops, false,
        [&](int i) {
          executor_->attention({device(x_.data()), rows, width}, settings,
                               i % static_cast<int>(layers), {device(out.data()), rows, width});
        },
        [&](int) { return bytes; });
    return {};
  }

  const KernelBenchOptions& options_;
  Backend& backend_;
  ThreadPool pool_;  // of the probes
  std::vector<int> rows_;
  MemoryBudget budget_;
  std::unique_ptr<Executor> executor_;
  std::vector<float> x_;
  std::vector<std::int32_t> chosen_;
  std::vector<float> weights_;
  KernelReport report_;
};

}  // namespace

Result<KernelReport> run_kernel_bench(const KernelBenchOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::kernels_of_backend(options.backend));
  BackendOptions backend_options;
  backend_options.name = options.backend;
  backend_options.threads.num_threads = options.num_threads;
  KAKEYA_ASSIGN_OR_RETURN(const auto backend, create_backend(backend_options));
  KernelBench bench(options, *backend, *kernels);
  KAKEYA_TRY(bench.run());
  return bench.take_report();
}

std::string format_kernel_report(const KernelReport& report) {
  std::string text = fmt::format(
      "{}, {} threads: bf16 peak {:.0f} GFLOP/s, f32 peak {:.0f} GFLOP/s\n"
      "{:<46} {:>4} {:>9} {:>8} {:>7} {:>6} {:>8} {:>6}\n",
      report.backend, report.num_threads, report.bf16_peak_gflops, report.f32_peak_gflops, "kernel",
      "rows", "ms", "MB", "GB/s", "% bw", "GFLOP/s", "% peak");
  for (const KernelResult& r : report.results) {
    text += fmt::format("{:<46} {:>4} {:>9.3f} {:>8.1f} {:>7.1f} {:>6.1f} {:>8.1f} {:>6.1f}\n",
                        r.name, r.rows, r.milliseconds, r.bytes * 1e-6, r.gigabytes_per_second,
                        r.bandwidth_percent, r.gflops, r.peak_percent);
  }
  return text;
}

}  // namespace kakeya::bench
