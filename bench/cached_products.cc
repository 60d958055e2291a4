#include "bench/cached_products.h"

#include <memory>
#include <utility>

#include "backend/cpu/cpu_matrix.h"
#include "backend/cpu/probe.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/status.h"
#include "tensor/random_weights.h"

namespace kakeya::bench {
namespace {

constexpr double kPieceSeconds = 1e-3;

// A product, and the memory that it works on.
class CachedCase {
 public:
  static Result<CachedCase> create(const cpu::Kernels& kernels, QuantizedFormat format) {
    TensorView view{
        .shape = {kCachedOutputs, kCachedColumns}, .name = "bench", .quantization = format};
    const cpu::PanelLayout layout(view, Compute::kFast);
    std::vector<std::byte> source(view.bytes());
    SequenceRng rng(12345);
    fill_random_blocks(format, /*deviation=*/0.02F, rng, source);
    view.data = source.data();
    auto budget = std::make_unique<MemoryBudget>();
    KAKEYA_ASSIGN_OR_RETURN(Buffer panels, budget->allocate(MemoryClass::kWeights,
                                                            cpu::CpuMatrix::packed_bytes(layout)));
    cpu::CpuMatrix matrix(layout, std::move(panels));
    ThreadPool pool({.num_threads = 1});
    KAKEYA_TRY(matrix.load(view, kernels, pool));
    return CachedCase(kernels, std::move(budget), std::move(matrix));
  }

  double bytes() const { return static_cast<double>(matrix_.bytes()); }
  const cpu::IntegerPanels& panels() const { return matrix_.integers(); }

  void set_rows(int rows) {
    const auto count = static_cast<std::size_t>(rows);
    std::vector<float> x(count * kCachedColumns);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761U % 2001);
    out_.resize(count * kCachedOutputs);
    packed_.resize(count * static_cast<std::size_t>(
                               cpu::integer_row_bytes(matrix_.padded_columns(), panels())));
    kernels_.pack_rows({.x = x.data(),
                        .stride = kCachedColumns,
                        .rows = rows,
                        .width = kCachedColumns,
                        .arithmetic = cpu::Arithmetic::kInteger,
                        .integers = panels(),
                        .packed = packed_.data()},
                       0, rows);
    rows_ = rows;
  }

  void run() {
    kernels_.multiply(
        {.x = packed_.data(),
         .rows = rows_,
         .columns = matrix_.padded_columns(),
         .panels = matrix_.panels(0),
         .panel_bytes = matrix_.panel_bytes(),
         .outputs = kCachedOutputs,
         .arithmetic = cpu::Arithmetic::kInteger,
         .integers = panels(),
         .out = out_.data(),
         .out_stride = kCachedOutputs},
        {.first_row = 0, .last_row = rows_, .first_panel = 0, .last_panel = matrix_.num_panels()});
  }

 private:
  CachedCase(const cpu::Kernels& kernels,
             std::unique_ptr<MemoryBudget> budget,
             cpu::CpuMatrix matrix)
      : kernels_(kernels), budget_(std::move(budget)), matrix_(std::move(matrix)) {}

  const cpu::Kernels& kernels_;
  std::unique_ptr<MemoryBudget> budget_;  // of the matrix's memory
  cpu::CpuMatrix matrix_;
  std::vector<std::byte> packed_;
  std::vector<float> out_;
  int rows_ = 0;
};

// The product and the bound in turn: both meet whatever else uses the core.
CachedProduct measure(const cpu::Kernels& kernels, CachedCase& product, int rows, double seconds) {
  product.set_rows(rows);
  CachedProduct result{.rows = rows,
                       .bytes = product.bytes(),
                       .multiplications = 1.0 * rows * kCachedColumns * kCachedOutputs};
  std::vector<double> calls;
  std::vector<double> cycles;
  std::vector<double> of_bound;
  const Stopwatch watch;
  do {
    const ThreadTime bound_time;
    const double bound = kernels.integer_bound(product.panels(), 10000) / bound_time.seconds();
    cycles.push_back(cpu::measure_cycle_seconds());
    const ThreadTime time;
    int count = 0;
    for (; time.seconds() < kPieceSeconds; ++count) product.run();
    calls.push_back(time.seconds() / count);
    of_bound.push_back(100.0 * result.multiplications / calls.back() / bound);
  } while (watch.seconds() < seconds);
  result.seconds = median(calls);
  result.cycle_seconds = median(cycles);
  result.percent_of_bound = median(of_bound);
  return result;
}

}  // namespace

Result<std::vector<CachedProduct>> measure_cached_products(const cpu::Kernels& kernels,
                                                           QuantizedFormat format,
                                                           std::span<const int> rows,
                                                           double seconds) {
  KAKEYA_ASSIGN_OR_RETURN(CachedCase product, CachedCase::create(kernels, format));
  std::vector<CachedProduct> results;
  for (const int count : rows) results.push_back(measure(kernels, product, count, seconds));
  return results;
}

}  // namespace kakeya::bench
