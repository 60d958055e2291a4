#include "bench/kernel_bench.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/instruction_set.h"
#include "backend/cpu/probe.h"
#include "base/status.h"
#include "bench/cached_products.h"
#include "bench/kernel_timer.h"
#include "kv/kv_cache.h"
#include "tensor/integer_blocks.h"
#include "tensor/random_weights.h"

namespace kakeya::bench {
namespace {

constexpr std::int64_t kHidden = 2816;
constexpr std::int64_t kVocabulary = 262144;
constexpr std::int64_t kExperts = 128;
constexpr std::int64_t kExpertWidth = 704;
constexpr std::int64_t kTopK = 8;
constexpr std::int64_t kMaxRows = 512;
constexpr std::int64_t kMaxWidth = 8192;
// Choices of experts: as many as choose each once for one row.
constexpr int kChoices = kExperts / kTopK;

// The type of weights as files have it.
struct WeightType {
  DType dtype = DType::kBF16;  // kF32 or kBF16
  std::optional<QuantizedFormat> format = {};

  std::string name() const {
    if (format) return std::string(quantized_format_name(*format));
    return dtype == DType::kF32 ? "f32" : "bf16";
  }
};

// A tensor of small numbers, or of random blocks; the values hardly matter, their distinct memory
// does.
struct Source {
  Source(Shape shape, const WeightType& type) {
    type.format ? fill(std::move(shape), *type.format) : fill(std::move(shape), type.dtype);
  }
  std::vector<std::byte> bytes;
  TensorView view;

 private:
  void fill(Shape shape, DType dtype) {
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
  void fill(Shape shape, QuantizedFormat format) {
    view = {.shape = std::move(shape), .name = "bench", .quantization = format};
    bytes.resize(view.bytes());
    view.data = bytes.data();
    SequenceRng rng(12345);
    fill_random_blocks(format, /*deviation=*/0.02F, rng, bytes);
  }
};

class KernelBench {
 public:
  KernelBench(const KernelBenchOptions& options, Backend& backend)
      : options_(options),
        backend_(backend),
        weights_{.format = options.weights},
        rows_(options.rows.empty() ? std::vector<int>{1, 2, 4, 8, 16, 32, 128, 512}
                                   : options.rows) {
    report_.backend = backend.name();
    report_.num_threads = backend.num_threads();
  }

  // `kernels`: of the CPU; null for another backend, whose peaks nobody knows.
  Status run(const cpu::Kernels* kernels) {
    if (kernels != nullptr) {
      ThreadPool pool({.num_threads = backend_.num_threads()});
      report_.bf16_peak_gflops = cpu::measure_bf16_peak(pool, *kernels, 0.2);
      report_.f32_peak_gflops = cpu::measure_f32_peak(pool, *kernels, 0.2);
    }
    KAKEYA_TRY(prepare());
    KAKEYA_TRY(bench_matmul(kHidden, 4096, weights_, Compute::kFast));
    if (!options_.weights) {
      KAKEYA_TRY(bench_matmul(kHidden, 4096, {}, Compute::kF32, " exact"));
      KAKEYA_TRY(bench_matmul(kHidden, 4096, {.dtype = DType::kF32}, Compute::kF32));
    }
    KAKEYA_TRY(bench_matmul(8192, kHidden, weights_, Compute::kFast));
    KAKEYA_TRY(bench_gated());
    KAKEYA_TRY(bench_head());
    KAKEYA_TRY(bench_experts());
    KAKEYA_TRY(bench_attention());
    KAKEYA_TRY(bench_loading());
    if (kernels != nullptr) KAKEYA_TRY(bench_cached(*kernels));
    if (!report_.results.empty()) return {};
    return invalid_argument("no case has '{}' in its name", options_.filter);
  }

  KernelReport take_report() { return std::move(report_); }

 private:
  Status prepare() {
    ExecutorPlan plan;
    plan.max_rows = kMaxRows;
    plan.max_matmul_width = kMaxWidth;
    plan.max_query_width = kMaxWidth;
    plan.max_head_dim = 512;
    plan.max_positions = 32768;
    plan.top_k_experts = kTopK;
    plan.num_experts = kExperts;
    plan.hidden_size = kHidden;
    plan.moe_intermediate_size = kExpertWidth;
    KAKEYA_ASSIGN_OR_RETURN(timer_, KernelTimer::create(backend_, plan, options_.seconds));
    return {};
  }

  bool wanted(const std::string& name) const {
    return options_.filter.empty() || name.find(options_.filter) != std::string::npos;
  }

  ConstRows x(std::int64_t rows, std::int64_t width) const { return timer_->x(rows, width); }
  Rows out(std::int64_t rows, std::int64_t width) const { return timer_->out(rows, width); }

  Status measure(const KernelCase& c, std::span<const KvLayer> layers = {}, Position position = 0) {
    KAKEYA_ASSIGN_OR_RETURN(KernelResult result, timer_->measure(c, layers, position));
    report_.results.push_back(std::move(result));
    return {};
  }

  // The peak of products with such weights.
  double peak_of(const WeightType& type, Compute compute = Compute::kFast) const {
    if (type.format) return 0.0;
    const bool is_f32 = type.dtype == DType::kF32 || compute == Compute::kF32;
    return is_f32 ? report_.f32_peak_gflops : report_.bf16_peak_gflops;
  }

  double bytes_of(const Source& source, Compute compute) const {
    return static_cast<double>(backend_.matrix_bytes(source.view, compute));
  }
  Result<std::unique_ptr<Matrix>> load(const Source& source, Compute compute = Compute::kFast) {
    return backend_.load_matrix(source.view, compute, timer_->budget());
  }

  // Makes as many copies as it takes to be well beyond the last-level cache.
  Result<std::vector<std::unique_ptr<Matrix>>> copies(const Source& source, Compute compute) {
    const double wanted_bytes =
        8.0 * static_cast<double>(std::max<std::size_t>(cpu::last_level_cache_bytes(), 64U << 20));
    std::vector<std::unique_ptr<Matrix>> matrices;
    while (static_cast<double>(matrices.size()) * bytes_of(source, compute) < wanted_bytes) {
      KAKEYA_ASSIGN_OR_RETURN(auto matrix, load(source, compute));
      matrices.push_back(std::move(matrix));
    }
    return matrices;
  }

  Status bench_matmul(std::int64_t columns,
                      std::int64_t outputs,
                      const WeightType& type,
                      Compute compute,
                      const std::string& suffix = {}) {
    const std::string name =
        fmt::format("matmul {}x{} {}{}", columns, outputs, type.name(), suffix);
    if (!wanted(name)) return {};
    const Source source({outputs, columns}, type);
    KAKEYA_ASSIGN_OR_RETURN(const auto matrices, copies(source, compute));
    for (const int rows : rows_) {
      KAKEYA_TRY(measure({.name = name,
                          .rows = rows,
                          .flops = 2.0 * rows * static_cast<double>(columns * outputs),
                          .peak = peak_of(type, compute),
                          .calls = static_cast<int>(matrices.size()),
                          .call =
                              [&](int i) {
                                timer_->executor().matmul(x(rows, columns),
                                                          *matrices[static_cast<std::size_t>(i)],
                                                          out(rows, outputs));
                              },
                          .bytes = [&](int) { return bytes_of(source, compute); }}));
    }
    return {};
  }

  Status bench_gated() {
    constexpr std::int64_t kWidth = 2112;
    const std::string name = fmt::format("gated_matmul {}x{} {}", kHidden, kWidth, weights_.name());
    if (!wanted(name)) return {};
    const Source source({kWidth, kHidden}, weights_);
    KAKEYA_ASSIGN_OR_RETURN(const auto gates, copies(source, Compute::kFast));
    KAKEYA_ASSIGN_OR_RETURN(const auto ups, copies(source, Compute::kFast));
    for (const int rows : rows_) {
      KAKEYA_TRY(measure({.name = name,
                          .rows = rows,
                          .flops = 4.0 * rows * static_cast<double>(kWidth * kHidden),
                          .peak = peak_of(weights_),
                          .calls = static_cast<int>(gates.size()),
                          .call =
                              [&](int i) {
                                const auto at = static_cast<std::size_t>(i);
                                timer_->executor().gated_matmul(x(rows, kHidden), *gates[at],
                                                                *ups[at], GateActivation::kGeluTanh,
                                                                out(rows, kWidth));
                              },
                          .bytes = [&](int) { return 2.0 * bytes_of(source, Compute::kFast); }}));
    }
    return {};
  }

  Status bench_head() {
    const std::string name = fmt::format("head {}x{} {}", kHidden, kVocabulary, weights_.name());
    if (wanted(name)) {
      const Source source({kVocabulary, kHidden}, weights_);
      KAKEYA_ASSIGN_OR_RETURN(const auto matrix, load(source));
      KAKEYA_TRY(measure(
          {.name = name,
           .flops = 2.0 * static_cast<double>(kVocabulary * kHidden),
           .peak = peak_of(weights_),
           .call =
               [&](int) { timer_->executor().matmul(x(1, kHidden), *matrix, out(1, kVocabulary)); },
           .bytes = [&](int) { return bytes_of(source, Compute::kFast); }}));
    }
    const std::string softcap = fmt::format("softcap {}", kVocabulary);
    if (!wanted(softcap)) return {};
    return measure({.name = softcap,
                    .call = [&](int) { timer_->executor().softcap(out(1, kVocabulary), 30.0F); },
                    .bytes = [&](int) { return 8.0 * kVocabulary; }});
  }

  Status bench_experts() {
    const std::string name = fmt::format("experts {} of {}x({},{}) {}", kTopK, kExperts,
                                         kExpertWidth, kHidden, weights_.name());
    if (!wanted(name)) return {};
    const Source wide({kExperts, kExpertWidth, kHidden}, weights_);
    const Source tall({kExperts, kHidden, kExpertWidth}, weights_);
    KAKEYA_ASSIGN_OR_RETURN(const auto gate, load(wide));
    KAKEYA_ASSIGN_OR_RETURN(const auto up, load(wide));
    KAKEYA_ASSIGN_OR_RETURN(const auto down, load(tall));
    const double bytes =
        (2.0 * bytes_of(wide, Compute::kFast) + bytes_of(tall, Compute::kFast)) / kExperts;
    for (const int rows : rows_) {
      const std::vector<std::int32_t> chosen = choose_experts(rows);
      KAKEYA_ASSIGN_OR_RETURN(const Buffer experts, timer_->place(chosen));
      KAKEYA_ASSIGN_OR_RETURN(const Buffer weights,
                              timer_->place(std::vector<float>(chosen.size(), 1.0F / kTopK)));
      const std::int64_t pairs = rows * kTopK;
      KAKEYA_TRY(measure(
          {.name = name,
           .rows = rows,
           .flops = 6.0 * rows * static_cast<double>(kTopK * kExpertWidth * kHidden),
           .peak = peak_of(weights_),
           .calls = kChoices,
           .call =
               [&](int i) {
                 timer_->executor().experts(x(rows, kHidden), {gate.get(), up.get(), down.get()},
                                            {experts.device<std::int32_t>() + i * pairs,
                                             weights.device<float>() + i * pairs, kTopK},
                                            GateActivation::kGeluTanh, out(rows, kHidden));
               },
           .bytes =
               [&](int i) {
                 std::vector<bool> used(kExperts);
                 for (const std::int32_t e : std::span(chosen).subspan(
                          static_cast<std::size_t>(i * pairs), static_cast<std::size_t>(pairs))) {
                   used[static_cast<std::size_t>(e)] = true;
                 }
                 return bytes * static_cast<double>(std::count(used.begin(), used.end(), true));
               }}));
    }
    return {};
  }

  // Independent random experts for each row, [kChoices, rows, kTopK]; choices of one row share
  // none.
  static std::vector<std::int32_t> choose_experts(int rows) {
    std::mt19937 generator(7);
    std::vector<std::int32_t> all(kExperts);
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(rows * kExperts));
    for (int row = 0; row < rows; ++row) {
      std::shuffle(all.begin(), all.end(), generator);
      for (int i = 0; i < kExperts; ++i) {
        const std::int64_t at = (i / kTopK * rows + row) * kTopK + i % kTopK;
        chosen[static_cast<std::size_t>(at)] = all[static_cast<std::size_t>(i)];
      }
    }
    return chosen;
  }

  // A weight is brought into the form that products read: memory allocated, read and written.
  Status bench_loading() {
    KAKEYA_TRY(bench_loading_of({}));
    for (const QuantizedFormat format : {QuantizedFormat::kQ80, QuantizedFormat::kQ40,
                                         QuantizedFormat::kQ4K, QuantizedFormat::kQ6K}) {
      KAKEYA_TRY(bench_loading_of({.format = format}));
    }
    return {};
  }

  Status bench_loading_of(const WeightType& type) {
    constexpr std::int64_t kOutputs = 8192;
    const std::string name = fmt::format("loading {}x{} {}", kOutputs, kHidden, type.name());
    if (!wanted(name)) return {};
    const Source source({kOutputs, kHidden}, type);
    Status status;
    KAKEYA_TRY(measure({.name = name,
                        .call =
                            [&](int) {
                              const auto matrix = load(source);
                              if (!matrix) status = Unexpected(matrix.error());
                            },
                        .bytes =
                            [&](int) {
                              return static_cast<double>(source.bytes.size()) +
                                     bytes_of(source, Compute::kFast);
                            }}));
    return status;
  }

  // Products of quantised weights that stay in a core's caches: each format of files, or the one
  // that was asked for.
  Status bench_cached(const cpu::Kernels& kernels) {
    for (const QuantizedFormat format : all_quantized_formats()) {
      const std::string name = fmt::format("in cache {}x{} {}", kCachedColumns, kCachedOutputs,
                                           quantized_format_name(format));
      if (!wanted(name) || (options_.weights && *options_.weights != format)) continue;
      if (!integer_format({.quantization = format}) || !has_random_blocks(format)) continue;
      KAKEYA_ASSIGN_OR_RETURN(const auto products, measure_cached_products(kernels, format, rows_,
                                                                           options_.seconds / 4.0));
      for (const CachedProduct& product : products) {
        report_.results.push_back(
            {.name = name,
             .rows = product.rows,
             .milliseconds = 1e3 * product.seconds,
             .bytes = product.bytes,
             .gigabytes_per_second = 1e-9 * product.bytes / product.seconds,
             .gflops = 2e-9 * product.multiplications / product.seconds,
             .peak_percent = product.percent_of_bound,
             .multiplications_per_cycle =
                 product.cycle_seconds * product.multiplications / product.seconds});
      }
    }
    return {};
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
         {KvFormat::kBf16, KvFormat::kF32, KvFormat::kInt8, KvFormat::kE8}) {
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
    KAKEYA_ASSIGN_OR_RETURN(
        const Buffer memory,
        timer_->budget().allocate(MemoryClass::kKvFull, layers * bytes_of_one, backend_.memory()));
    backend_.memory().fill(memory.device<std::byte>(), std::byte{0x3c}, memory.size());
    std::vector<DevicePointer<std::byte>> keys;
    std::vector<DevicePointer<std::byte>> values;
    for (std::size_t at = 0; at < memory.size();
         at += static_cast<std::size_t>(layout.block_bytes)) {
      keys.push_back(memory.device<std::byte>() + static_cast<std::int64_t>(at));
      values.push_back(keys.back() + (cached.one_vector ? 0 : kv.block_slots * kv.slot_bytes()));
    }
    std::vector<KvLayer> table;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::size_t first = layer * static_cast<std::size_t>(layout.blocks);
      kv.keys = cached.one_vector ? nullptr : keys.data() + first;
      kv.values = values.data() + first;
      table.push_back({.rows = kv, .window = cached.window});
    }
    KAKEYA_ASSIGN_OR_RETURN(
        const Buffer k_norm,
        timer_->place(std::vector<float>(static_cast<std::size_t>(cached.head_dim), 1.0F)));
    // A quarter of the dimensions rotates, as in the published models.
    const std::int64_t turned = cached.head_dim / 8;
    KAKEYA_ASSIGN_OR_RETURN(const Buffer frequencies, timer_->place(std::vector<float>(
                                                          static_cast<std::size_t>(turned), 0.1F)));
    const AttentionSettings settings{
        .scale = 0.01F,
        .compute = Compute::kFast,
        .derivation = {.k_norm = k_norm.device<const float>(),
                       .inverse_frequencies = {frequencies.device<const float>(), turned}}};
    const std::int64_t width = cached.heads * cached.head_dim;
    const std::int64_t seen = cached.window == 0 ? cached.context : cached.window;
    const double bytes =
        (cached.one_vector ? 1.0 : 2.0) * static_cast<double>((seen + rows - 1) * kv.slot_bytes());
    return measure({.name = cached.name(),
                    .rows = rows,
                    .flops = 4.0 * rows * static_cast<double>(seen * width),
                    .peak = report_.f32_peak_gflops,
                    .calls = static_cast<int>(layers),
                    .call =
                        [&](int i) {
                          timer_->executor().attention(x(rows, width), settings, i,
                                                       out(rows, width));
                        },
                    .bytes = [&](int) { return bytes; }},
                   table, cached.context - 1);
  }

  const KernelBenchOptions& options_;
  Backend& backend_;
  const WeightType weights_;  // of products
  std::vector<int> rows_;
  std::unique_ptr<KernelTimer> timer_;
  KernelReport report_;
};

// A number that is known, or a line.
std::string known(double value) {
  return value > 0.0 ? fmt::format("{:.1f}", value) : "-";
}

}  // namespace

Result<KernelReport> run_kernel_bench(const KernelBenchOptions& options) {
  const cpu::Kernels* kernels = nullptr;
  if (options.backend.starts_with("cpu")) {
    KAKEYA_ASSIGN_OR_RETURN(kernels, cpu::kernels_of_backend(options.backend));
  }
  BackendOptions backend_options;
  backend_options.name = options.backend;
  backend_options.threads.num_threads = options.num_threads;
  KAKEYA_ASSIGN_OR_RETURN(const auto backend, create_backend(backend_options));
  KernelBench bench(options, *backend);
  KAKEYA_TRY(bench.run(kernels));
  return bench.take_report();
}

std::string format_kernel_report(const KernelReport& report) {
  std::string text = fmt::format("{}, {} threads", report.backend, report.num_threads);
  if (report.bf16_peak_gflops > 0.0) {
    text += fmt::format(": bf16 peak {:.0f} GFLOP/s, f32 peak {:.0f} GFLOP/s",
                        report.bf16_peak_gflops, report.f32_peak_gflops);
  }
  text += fmt::format("\n{:<46} {:>4} {:>9} {:>8} {:>7} {:>6} {:>8} {:>6} {:>9}\n", "kernel",
                      "rows", "ms", "MB", "GB/s", "% bw", "GFLOP/s", "% peak", "MAC/cycle");
  for (const KernelResult& r : report.results) {
    text += fmt::format("{:<46} {:>4} {:>9.4f} {:>8.1f} {:>7.1f} {:>6} {:>8.1f} {:>6} {:>9}\n",
                        r.name, r.rows, r.milliseconds, r.bytes * 1e-6, r.gigabytes_per_second,
                        known(r.bandwidth_percent), r.gflops, known(r.peak_percent),
                        known(r.multiplications_per_cycle));
  }
  return text;
}

}  // namespace kakeya::bench
