#include "bench/attention_bench.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "backend/cpu/instruction_set.h"
#include "backend/cpu/probe.h"
#include "backend/host_rows.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/status.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"

namespace kakeya::bench {
namespace {

constexpr std::string_view kOneVector = "-one";
constexpr std::size_t kMostCopies = 1024;  // of a case's rows

struct AttentionCase {
  LayerCacheSpec layer;
  AttentionRows kind;
  std::int64_t context = 0;
  std::int64_t rows = 0;
};

// The shape's first layer of a class, as rows of this kind are kept; nothing if it has none, or has
// keys that do not follow from values.
std::optional<LayerCacheSpec> find_layer(const ModelConfig& config,
                                         const AttentionRows& kind,
                                         bool sliding) {
  KvPlan plan;
  plan.full.format = plan.sliding.format = kind.format;
  plan.pairs = !kind.one_vector;
  for (const LayerCacheSpec& layer : plan_cache(config, 1, 1, plan).layers) {
    if ((layer.window != 0) != sliding) continue;
    if (layer.one_vector == kind.one_vector) return layer;
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<AttentionCase> list_cases(const AttentionBenchOptions& options) {
  std::vector<AttentionCase> cases;
  for (const bool sliding : {true, false}) {
    for (const AttentionRows& kind : options.kinds) {
      const auto layer = find_layer(options.config, kind, sliding);
      if (!layer) continue;
      std::set<std::int64_t> contexts;
      for (const std::int64_t context : options.contexts) {
        contexts.insert(sliding ? std::min(context, layer->window) : context);
      }
      for (const std::int64_t context : contexts) {
        for (const std::int64_t rows : options.rows) {
          cases.push_back({*layer, kind, context, rows});
        }
      }
    }
  }
  return cases;
}

class AttentionBench {
 public:
  AttentionBench(const AttentionBenchOptions& options, Backend& backend)
      : options_(options), backend_(backend), pool_({.num_threads = backend.num_threads()}) {}

  Result<AttentionResult> measure(const AttentionCase& c) {
    KAKEYA_ASSIGN_OR_RETURN(const KvCache cache, filled_cache(c));
    KAKEYA_ASSIGN_OR_RETURN(
        const auto executor,
        backend_.create_executor(plan_executor(options_.config, c.rows), budget_));
    const std::int64_t width = options_.config.num_attention_heads * c.layer.head_dim;
    const std::vector<float> queries = random_queries(c.rows * width);
    const std::vector<float> k_norm(static_cast<std::size_t>(c.layer.head_dim), 1.0F);
    const std::vector<float> frequencies = inverse_frequencies(
        c.layer.window != 0 ? options_.config.rope_sliding : options_.config.rope_full,
        c.layer.head_dim);
    std::vector<float> out(queries.size());
    const AttentionSettings settings{
        .scale = 0.01F,
        .compute = Compute::kFast,
        .derivation = {.k_norm = device(k_norm.data()),
                       .inverse_frequencies = device_vector(frequencies)}};
    const auto batch = BatchBuilder::one_of_rows(c.rows, c.context, cache.layers());
    executor->begin(batch.batch());
    const auto layers = static_cast<std::int64_t>(cache.spec().layers.size());
    std::int64_t calls = 0;
    const auto call = [&] {
      executor->attention({device(queries.data()), c.rows, width}, settings, calls++ % layers,
                          {device(out.data()), c.rows, width});
    };
    AttentionResult result{
        .sliding = c.layer.window != 0, .kind = c.kind, .context = c.context, .rows = c.rows};
    const double before = cpu::measure_read_bandwidth(pool_);
    call();
    result.bytes = static_cast<double>(executor->bytes_read());
    std::vector<double> times;
    const Stopwatch all;
    while (times.size() < 3 || all.seconds() < options_.seconds) {
      const Stopwatch watch;
      call();
      times.push_back(watch.seconds());
    }
    result.probe_gb_per_s = 0.5 * (before + cpu::measure_read_bandwidth(pool_));
    result.seconds = median(times);
    result.min_seconds = *std::min_element(times.begin(), times.end());
    result.max_seconds = *std::max_element(times.begin(), times.end());
    return result;
  }

 private:
  // Several layers' worth of rows, so that none is found in a processor's cache.
  Result<KvCache> filled_cache(const AttentionCase& c) {
    KvCacheSpec spec{.layers = {c.layer}, .context = c.context + c.rows, .max_rows = c.rows};
    KAKEYA_TRY(spec.check());
    const BlockLayout layout = spec.layout(c.layer);
    const auto layer_bytes = static_cast<std::size_t>(layout.blocks * layout.block_bytes);
    const std::size_t copies = 4 * cpu::last_level_cache_bytes() / layer_bytes + 1;
    spec.layers.resize(std::min(copies, kMostCopies), c.layer);
    KAKEYA_ASSIGN_OR_RETURN(KvCache cache, KvCache::create(spec, budget_));
    for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
      const KvRows& rows = cache.rows(static_cast<std::int64_t>(layer));
      for (std::int64_t block = 0; block < layout.blocks; ++block) {
        // Small numbers in every format, in memory of its own.
        cache.space().fill((rows.keys == nullptr ? rows.values : rows.keys)[block], std::byte{0x3c},
                           static_cast<std::uint64_t>(layout.block_bytes));
      }
    }
    return cache;
  }

  static std::vector<float> random_queries(std::int64_t count) {
    std::mt19937 generator(7);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<float> queries(static_cast<std::size_t>(count));
    for (float& x : queries) x = uniform(generator);
    return queries;
  }

  const AttentionBenchOptions& options_;
  Backend& backend_;
  ThreadPool pool_;  // of the probe
  MemoryBudget budget_;
};

}  // namespace

std::string AttentionRows::name() const {
  return std::string(kv_format_name(format)) + (one_vector ? std::string(kOneVector) : "");
}

Result<AttentionRows> parse_attention_rows(std::string_view name) {
  AttentionRows kind;
  kind.one_vector = name.ends_with(kOneVector);
  const std::string_view of =
      name.substr(0, name.size() - (kind.one_vector ? kOneVector.size() : 0));
  const std::string removed = removed_kv_type_refusal(of);
  if (!removed.empty()) return invalid_argument("--kv: {}", removed);
  const auto format = parse_kv_format(of);
  if (!format) {
    std::string names;
    for (const KvFormat known : kKvFormats) names += fmt::format("{}, ", kv_format_name(known));
    return invalid_argument("--kv must be of {}each also with {} behind it, but is '{}'", names,
                            kOneVector, name);
  }
  kind.format = *format;
  return kind;
}

Result<AttentionReport> bench_attention(const AttentionBenchOptions& options) {
  const std::vector<AttentionCase> cases = list_cases(options);
  if (cases.empty()) {
    return invalid_argument(
        "no layer of this shape keeps one vector for key and value: expected --kv without {}",
        kOneVector);
  }
  KAKEYA_TRY(cpu::kernels_of_backend(options.backend));  // others' rows are not the host's
  BackendOptions backend_options;
  backend_options.name = options.backend;
  backend_options.threads.num_threads = options.num_threads;
  KAKEYA_ASSIGN_OR_RETURN(const auto backend, create_backend(backend_options));
  AttentionReport report{.backend = std::string(backend->name()),
                         .num_threads = backend->num_threads(),
                         .results = {}};
  AttentionBench bench(options, *backend);
  for (const AttentionCase& c : cases) {
    KAKEYA_ASSIGN_OR_RETURN(const AttentionResult result, bench.measure(c));
    report.results.push_back(result);
    if (options.on_progress) {
      options.on_progress(static_cast<int>(report.results.size()), static_cast<int>(cases.size()));
    }
  }
  return report;
}

}  // namespace kakeya::bench
