// An executor around another one, for those that look at operations on their way.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "backend/executor.h"

namespace kakeya {

// Hands every operation to the inner executor and counts the bytes that it reads. `Derived` may
// have its own around(), which runs each operation (or leaves it out), and override single ones.
template <typename Derived>
class ForwardingExecutor : public Executor {
 public:
  explicit ForwardingExecutor(std::unique_ptr<Executor> inner) : inner_(std::move(inner)) {}

  template <typename Operation, typename... Arguments>
  void around(std::string_view /*name*/, Operation&& operation, Arguments&... /*arguments*/) {
    operation();
  }

  void begin(const Batch& batch) override {
    Executor::begin(batch);
    inner_->begin(batch);
  }
  Status end(std::span<const ConstRows> read) override { return inner_->end(read); }
  void embed(const Matrix& table, float scale, Rows out) override {
    forward<&Executor::embed>("embed", table, scale, out);
  }
  void rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) override {
    forward<&Executor::rms_norm>("rms_norm", x, weight, eps, out);
  }
  void matmul(ConstRows x, const Matrix& w, Rows out) override {
    forward<&Executor::matmul>("matmul", x, w, out);
  }
  void gated_matmul(ConstRows x,
                    const Matrix& gate,
                    const Matrix& up,
                    GateActivation activation,
                    Rows out) override {
    forward<&Executor::gated_matmul>("gated_matmul", x, gate, up, activation, out);
  }
  void gated_multiply(ConstRows gate,
                      DevicePointer<const float> other,
                      std::int64_t other_stride,
                      GateActivation activation,
                      Rows out) override {
    forward<&Executor::gated_multiply>("gated_multiply", gate, other, other_stride, activation,
                                       out);
  }
  void make_rope_table(ConstVector inverse_frequencies, RopeTable table) override {
    forward<&Executor::make_rope_table>("make_rope_table", inverse_frequencies, table);
  }
  void apply_rope(Rows x, RopeTable table) override {
    forward<&Executor::apply_rope>("apply_rope", x, table);
  }
  void store_kv(ConstRows keys, ConstRows values, std::int64_t layer) override {
    forward<&Executor::store_kv>("store_kv", keys, values, layer);
  }
  void store_codes(ConstRows keys, ConstRows values, std::int64_t layer) override {
    forward<&Executor::store_codes>("store_codes", keys, values, layer);
  }
  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override {
    forward<&Executor::attention>("attention", queries, settings, layer, out);
  }
  void gather_logit_rows(ConstRows x, Rows out) override {
    forward<&Executor::gather_logit_rows>("gather_logit_rows", x, out);
  }
  void route(ConstRows logits,
             DevicePointer<const float> per_expert_scale,
             Routing routing) override {
    forward<&Executor::route>("route", logits, per_expert_scale, routing);
  }
  void experts(ConstRows x,
               const ExpertWeights& weights,
               const Routing& routing,
               GateActivation activation,
               Rows out) override {
    forward<&Executor::experts>("experts", x, weights, routing, activation, out);
  }
  void add(ConstRows a, ConstRows b, float scale, Rows out) override {
    forward<&Executor::add>("add", a, b, scale, out);
  }
  void add_vector(Rows x, ConstVector vector) override {
    forward<&Executor::add_vector>("add_vector", x, vector);
  }
  void convolve(ConstRows x, const RowConvolution& convolution, Rows out) override {
    forward<&Executor::convolve>("convolve", x, convolution, out);
  }
  void softcap(Rows x, float cap) override { forward<&Executor::softcap>("softcap", x, cap); }
  void choose(std::span<SequenceChoice> choices, HostCopies& copies) override {
    forward<&Executor::choose>("choose", choices, copies);
  }
  void choose_drafts(std::span<BlockChoice> choices, HostCopies& copies) override {
    forward<&Executor::choose_drafts>("choose_drafts", choices, copies);
  }
  void list_largest(Rows logits,
                    TokenId never,
                    HostCopies& copies,
                    std::span<TokenLogit> out) override {
    forward<&Executor::list_largest>("list_largest", logits, never, copies, out);
  }
  void copy_columns(ConstRows x,
                    DevicePointer<float> out,
                    std::int64_t out_width,
                    std::int64_t column) override {
    forward<&Executor::copy_columns>("copy_columns", x, out, out_width, column);
  }

 protected:
  template <auto operation, typename... Arguments>
  void forward(std::string_view name, Arguments&... arguments) {
    const auto run = [&] {
      const std::uint64_t before = inner_->bytes_read();
      (inner_.get()->*operation)(arguments...);
      count_bytes(inner_->bytes_read() - before);
    };
    static_cast<Derived&>(*this).around(name, run, arguments...);
  }

 private:
  std::unique_ptr<Executor> inner_;
};

}  // namespace kakeya
