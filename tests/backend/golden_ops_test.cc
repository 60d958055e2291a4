// The published implementation's operations, recorded in tests/data/ops, on the reference and on
// every CPU instruction set. Wrong variants must miss by ten times the tolerance.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/backend_fixture.h"

namespace kakeya {
namespace {

using nlohmann::json;

std::string read_text(const std::string& name) {
  std::ifstream file(std::string(KAKEYA_TEST_DATA) + "/ops/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

class Golden {
 public:
  explicit Golden(const std::string& op)
      : op_(op),
        meta_(json::parse(read_text(op + ".json"))),
        tolerance_(json::parse(read_text("manifest.json"))
                       .at("ops")
                       .at(op)
                       .at("tolerance_max_abs_diff")
                       .get<double>()) {}

  std::vector<float> tensor(const std::string& field) const {
    const std::string bytes = read_text(meta_.at(field).at("bin").get<std::string>());
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    EXPECT_EQ(values.size(), meta_.at(field).at("num_elements").get<std::size_t>());
    return values;
  }
  float number(const std::string& field) const { return meta_.at(field).get<float>(); }

  void expect_right(const std::vector<float>& got, const std::string& output = "output") const {
    EXPECT_LE(largest_difference(got, tensor(output)), tolerance_) << op_;
  }
  void expect_wrong(const std::vector<float>& got, const std::string& output = "output") const {
    EXPECT_GE(largest_difference(got, tensor(output)), 10.0 * tolerance_) << op_;
  }

 private:
  static double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - b[i]));
    }
    return largest;
  }

  std::string op_;
  json meta_;
  double tolerance_;
};

class GoldenOps : public testing::TestWithParam<Configuration> {
 protected:
  Machine machine_{GetParam()};
  Executor& executor_ = *machine_.executor;
};

INSTANTIATE_TEST_SUITE_P(AllSets,
                         GoldenOps,
                         testing::ValuesIn(all_configurations()),
                         [](const auto& test) { return configuration_name(test.param); });

TEST_P(GoldenOps, RmsNorm) {
  for (const char* op : {"rms_norm", "rms_norm_wide"}) {
    const Golden golden(op);
    const auto x = golden.tensor("input");
    auto weight = golden.tensor("weight");
    const auto width = static_cast<std::int64_t>(weight.size());
    std::vector<float> out(x.size());
    const float eps = golden.number("eps");
    executor_.rms_norm(rows_of(x, width), device(weight.data()), eps, rows_of(out, width));
    golden.expect_right(out);
    executor_.rms_norm(rows_of(x, width), nullptr, eps, rows_of(out, width));
    golden.expect_wrong(out);
    for (float& w : weight) w += 1.0F;  // the convention of Gemma 3
    executor_.rms_norm(rows_of(x, width), device(weight.data()), eps, rows_of(out, width));
    golden.expect_wrong(out);
  }
}

TEST_P(GoldenOps, NormsOfQueriesKeysAndValues) {
  const Golden golden("qk_norm_v_unscaled");
  for (const char* head : {"q", "k", "v"}) {
    const std::string name = head;
    const auto x = golden.tensor(name + "_input");
    const bool scaled = name != "v";
    const auto weight =
        scaled ? golden.tensor(name + "_norm_weight") : golden.tensor("k_norm_weight");
    const auto width = static_cast<std::int64_t>(weight.size());
    std::vector<float> out(x.size());
    const auto norm = [&](bool with_weight) {
      executor_.rms_norm(rows_of(x, width), device(with_weight ? weight.data() : nullptr), 1e-6F,
                         rows_of(out, width));
      return out;
    };
    golden.expect_right(norm(scaled), name + "_output");
    golden.expect_wrong(norm(!scaled), name + "_output");
  }
}

TEST_P(GoldenOps, GatedMlp) {
  const Golden golden("geglu_mlp");
  const auto load = [&](const char* field, Shape shape) {
    const Tensor tensor(std::move(shape), DType::kF32, golden.tensor(field));
    return machine_.backend->load_matrix(tensor.view, Compute::kFast, machine_.budget).value();
  };
  const auto gate = load("gate_proj_weight", {96, 64});
  const auto up = load("up_proj_weight", {96, 64});
  const auto down = load("down_proj_weight", {64, 96});
  const auto x = golden.tensor("input");
  const auto mlp = [&](const Matrix& first, const Matrix& second, GateActivation activation) {
    std::vector<float> hidden(6 * 96);
    std::vector<float> out(x.size());
    executor_.gated_matmul(rows_of(x, 64), first, second, activation, rows_of(hidden, 96));
    executor_.matmul(rows_of(hidden, 96), *down, rows_of(out, 64));
    return out;
  };
  golden.expect_right(mlp(*gate, *up, GateActivation::kGeluTanh));
  golden.expect_wrong(mlp(*gate, *up, GateActivation::kSilu));
  golden.expect_wrong(mlp(*up, *gate, GateActivation::kGeluTanh));
}

TEST_P(GoldenOps, ScaledEmbedding) {
  const Golden golden("scaled_embedding");
  const json meta = json::parse(read_text("scaled_embedding.json"));
  std::vector<TokenId> ids;
  for (const json& row : meta.at("input_ids")) {
    for (const json& id : row) ids.push_back(id.get<TokenId>());
  }
  const Tensor table({40, 64}, DType::kF32, golden.tensor("embed_weight"));
  const auto matrix = machine_.backend->map_table(table.view).value();
  std::vector<float> out(ids.size() * 64);
  machine_.embed(*matrix, ids, golden.number("embed_scale"), rows_of(out, 64));
  golden.expect_right(out);
  machine_.embed(*matrix, ids, 1.0F, rows_of(out, 64));
  golden.expect_wrong(out);
}

TEST_P(GoldenOps, LogitSoftcap) {
  const Golden golden("logit_softcap");
  const json meta = json::parse(read_text("logit_softcap.json"));
  const float cap = meta.at("cap").get<float>();
  auto x = golden.tensor("input");
  golden.expect_wrong(x);
  auto wrong = x;
  const auto width = static_cast<std::int64_t>(x.size());
  executor_.softcap(rows_of(x, width), cap);
  golden.expect_right(x);
  executor_.softcap(rows_of(wrong, width), cap + 1.0F);
  golden.expect_wrong(wrong);
}

TEST_P(GoldenOps, DualRope) {
  const Golden golden("dual_rope");
  for (const std::string layer : {"local", "global"}) {
    const auto frequencies = golden.tensor(layer + "_inv_freq");
    const auto half = static_cast<std::int64_t>(frequencies.size());
    const auto x = golden.tensor(layer + "_input");
    const auto rotated = [&](Position first, const std::vector<float>& with) {
      std::vector<float> cos(static_cast<std::size_t>(6 * half));
      std::vector<float> sin(cos.size());
      const RopeTable table = {device(cos.data()), device(sin.data()), half};
      machine_.make_rope_table(first, 6, with, table);
      std::vector<float> out = x;
      executor_.apply_rope(rows_of(out, 4 * half), table);  // [6, 2 heads * 2 half]
      return out;
    };
    golden.expect_right(rotated(0, frequencies), layer + "_output");
    golden.expect_wrong(rotated(1, frequencies), layer + "_output");
    golden.expect_wrong(rotated(0, std::vector<float>(frequencies.rbegin(), frequencies.rend())),
                        layer + "_output");
  }
}

}  // namespace
}  // namespace kakeya
