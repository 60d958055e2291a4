// Every unit of the CPU backend is tested, natively or by its twin; a test's name says which.
// A machine that can do neither skips the unit. REQUIRED_UNITS in the environment names units, with
// commas, that must not go untested.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "backend/backend_fixture.h"

namespace kakeya {
namespace {

using test::TestUnit;
using test::UnitRun;

const char* how(UnitRun run) {
  return run == UnitRun::kNatively ? "natively" : run == UnitRun::kByTwin ? "by its twin" : "NOT";
}

bool is_required(const std::string& unit) {
  const char* const required = std::getenv("REQUIRED_UNITS");
  if (required == nullptr) return false;
  return ("," + std::string(required) + ",").find("," + unit + ",") != std::string::npos;
}

class InstructionSets : public testing::TestWithParam<TestUnit> {};

// A product of every kind of arithmetic; the other tests compare what it gives.
void run_products(const std::string& instruction_set) {
  Machine machine(Configuration{instruction_set, 1});
  const auto x = random_floats(std::size_t{20} * 64, 1);
  const Tensor tensor = random_tensor({16, 64}, DType::kBF16, 2);
  Machine ref(Configuration{});
  for (const Compute compute : {Compute::kF32, Compute::kFast}) {
    std::vector<std::vector<float>> results;
    for (Machine* one : {&machine, &ref}) {
      const auto matrix = one->backend->load_matrix(tensor.view, compute, one->budget).value();
      std::vector<float> out(20 * 16);
      one->executor->matmul(rows_of(x, 64), *matrix, rows_of(out, 16));
      results.push_back(out);
    }
    // Fast rows are rounded to bf16, 2^-9 of themselves: 64 products of numbers below 1.
    const float tolerance = compute == Compute::kFast ? 64.0F * 0x1p-9F : 1e-5F;
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      ASSERT_NEAR(results[0][i], results[1][i], tolerance);
    }
  }
}

TEST_P(InstructionSets, IsTested) {
  const TestUnit& unit = GetParam();
  if (unit.run == UnitRun::kNeither) {
    ASSERT_FALSE(is_required(unit.name))
        << "REQUIRED_UNITS has " << unit.name << ", which this machine runs neither natively nor "
        << "by a twin";
    GTEST_SKIP() << "this machine runs " << unit.name
                 << " neither natively nor by a twin: it goes untested here";
  }
  run_products(unit.instruction_set);
}

INSTANTIATE_TEST_SUITE_P(Units,
                         InstructionSets,
                         testing::ValuesIn(test::test_units()),
                         [](const auto& test) {
                           const TestUnit& unit = test.param;
                           return unit.name + (unit.run == UnitRun::kNatively ? "_natively"
                                               : unit.run == UnitRun::kByTwin ? "_by_its_twin"
                                                                              : "_NOT");
                         });

// `make test` ends with this table.
TEST(InstructionSetTable, Prints) {
  std::printf("unit         tested\n");
  for (const TestUnit& unit : test::test_units()) {
    std::printf("%-12s %s\n", unit.name.c_str(), how(unit.run));
  }
}

// Users cannot ask for a twin.
TEST(InstructionSetTable, HasNoTwinsForUsers) {
  for (const InstructionSetSupport& set : instruction_sets()) {
    EXPECT_EQ(set.name.find("twin"), std::string_view::npos);
  }
  for (const TestUnit& unit : test::test_units()) {
    BackendOptions options;
    options.name = "cpu/" + unit.name + "_twin";
    const auto backend = create_backend(options);
    ASSERT_FALSE(backend.has_value());
    EXPECT_EQ(backend.error().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kakeya
