// Kernels for cards read each weight as often as is planned: once, for as many rows as a tile has.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend_fixture.h"
#include "backend/cuda/cuda_matrix.h"
#include "backend/cuda/cuda_recorder.h"
#include "backend/cuda/device/params.h"
#include "formats/quantized_tensors.h"
#include "thorough.h"

namespace kakeya::cuda {
namespace {

constexpr std::int64_t kOutputs = 128;  // of a whole tile
constexpr std::int64_t kColumns = 512;

class CudaReads : public testing::Test {
 protected:
  CudaReads() {
    auto driver = std::make_unique<Recorder>(&counted_);
    recorder_ = driver.get();
    backend_ = create_backend_on(std::move(driver), 1);
    executor_ = backend_->create_executor(roomy_plan(), budget_).value();
  }
  std::unique_ptr<Matrix> load(const TensorView& view) {
    auto loaded = backend_->load_matrix(view, Compute::kFast, budget_);
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message();
    return std::move(loaded).value();
  }
  // How many matrices, of one or of a stack, are read by what `run` launches.
  template <typename Run>
  double readings(const Matrix& matrix, const Run& run) {
    const auto& own = static_cast<const CudaMatrix&>(matrix);
    const auto begin = reinterpret_cast<std::uintptr_t>(own.weight().data);
    counted_ = {begin, begin + static_cast<std::uintptr_t>(matrix.num_matrices()) * own.bytes(), 0};
    recorder_->ran.clear();
    run();
    return static_cast<double>(counted_.bytes) / static_cast<double>(own.bytes());
  }
  // The tiles of rows of the last launch, which has such parameters.
  template <typename Params>
  double tiles(Kernel tiled, std::int64_t rows) const {
    constexpr std::int64_t kMostRows = 16;  // of other kernels
    const std::size_t last = recorder_->ran.size() - 1;
    if (recorder_->ran.kernel(last) != tiled) {
      return std::ceil(static_cast<double>(rows) / kMostRows);
    }
    const auto& p = *static_cast<const Params*>(recorder_->ran.parameters(last));
    return std::ceil(static_cast<double>(rows) / p.plan.tile_rows);
  }

  Recorder* recorder_;
  emulated::CountedReads counted_;
  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(CudaReads, OfProductsAreOneOfEachWeightForATileOfRows) {
  const std::vector<float> x = random_floats(static_cast<std::size_t>(64 * kColumns), 7);
  std::vector<float> out(static_cast<std::size_t>(64 * kOutputs));
  std::size_t index = 0;
  for (const auto& [name, tensor] : tensors_of_every_format({kOutputs, kColumns}, 3)) {
    if (!test::is_run(index++, 4)) continue;
    const auto matrix = load(tensor.view);
    for (const std::int64_t rows : {1, 2, 8, 9, 16, 33, 64}) {
      const ConstRows in = {kakeya::device(x.data()), rows, kColumns};
      const double plain =
          readings(*matrix, [&] { executor_->matmul(in, *matrix, rows_of(out, kOutputs)); });
      EXPECT_EQ(plain, tiles<device::IntegerProductParams>(Kernel::integer_product_tiles, rows))
          << name << ", " << rows << " rows";
      // The gate is what it gates, too: so it is read twice.
      const double gated = readings(*matrix, [&] {
        executor_->gated_matmul(in, *matrix, *matrix, GateActivation::kSilu,
                                rows_of(out, kOutputs));
      });
      EXPECT_EQ(gated,
                2 * tiles<device::GatedProductParams>(Kernel::gated_integer_product_tiles, rows))
          << name << ", gated, " << rows << " rows";
    }
  }
}

// One row, and few.
TEST_F(CudaReads, OfExpertsAreOneOfEachThatSomeRowHasChosen) {
  constexpr std::int64_t kExperts = 8;
  constexpr std::int64_t kTopK = 2;
  const auto wide = tensors_of_every_format({kExperts, 64, 512}, 3);
  const auto tall = tensors_of_every_format({kExperts, 512, 64}, 4);
  const std::vector<float> x = random_floats(8 * 512, 7);
  std::vector<float> weights(8 * kTopK, 0.5F);
  std::vector<float> out(8 * 512);
  for (std::size_t format = 0; format < wide.size(); ++format) {
    if (!integer_format(tall[format].tensor.view) || !test::is_run(format, 4)) continue;
    const auto gate = load(wide[format].tensor.view);
    const auto up = load(wide[format].tensor.view);
    const auto down = load(tall[format].tensor.view);
    for (const std::int64_t rows : {1, 2, 7}) {
      std::vector<std::int32_t> chosen;
      for (std::int64_t row = 0; row < rows; ++row) {
        chosen.push_back(static_cast<std::int32_t>(row % 3));
        chosen.push_back(7);
      }
      const std::set<std::int32_t> distinct(chosen.begin(), chosen.end());
      for (const auto& matrix : {gate.get(), up.get(), down.get()}) {
        const double read = readings(*matrix, [&] {
          executor_->experts({kakeya::device(x.data()), rows, 512},
                             {gate.get(), up.get(), down.get()},
                             {kakeya::device(chosen.data()), kakeya::device(weights.data()), kTopK},
                             GateActivation::kSilu, rows_of(out, 512));
        });
        EXPECT_EQ(read, static_cast<double>(distinct.size()))
            << wide[format].name << ", " << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace kakeya::cuda
