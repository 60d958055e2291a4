#include "formats/tensor_matcher.h"

#include <fmt/format.h>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr std::size_t kMaxListedProblems = 100;
constexpr std::string_view kFusedExperts = ".experts.gate_up_proj";

// Gate and up of a fused tensor as tensors of their own; without names if it is none.
std::pair<TensorSpec, TensorSpec> halves_of(const TensorSpec& fused) {
  if (!fused.name.ends_with(kFusedExperts) || fused.shape.size() != 3) return {};
  const std::string prefix = fused.name.substr(0, fused.name.size() - kFusedExperts.size());
  const Shape shape = {fused.shape[0], fused.shape[1] / 2, fused.shape[2]};
  return {{prefix + ".experts.gate_proj", shape}, {prefix + ".experts.up_proj", shape}};
}

}  // namespace

TensorMatcher::TensorMatcher(std::string_view path,
                             std::span<const TensorSpec> wanted,
                             Spelling spelling)
    : path_(path), wanted_(wanted), spelling_(std::move(spelling)) {
  for (const TensorSpec& spec : wanted) {
    specs_.emplace(spec.name, spec);
    const auto [gate, up] = halves_of(spec);
    if (gate.name.empty()) continue;
    specs_.emplace(gate.name, gate);
    specs_.emplace(up.name, up);
  }
}

const TensorSpec* TensorMatcher::accept(const OfferedTensor& tensor) {
  const auto found = specs_.find(tensor.name);
  if (!tensor.name.empty()) {
    const auto [earlier, first] = seen_.emplace(tensor.name, tensor.full_name);
    if (!first) {
      add_problem(fmt::format("{} in {} is the same tensor as {}", printable(tensor.full_name),
                              tensor.file, printable(earlier->second)));
      return nullptr;
    }
  }
  if (found == specs_.end()) {
    add_problem(fmt::format("unexpected {} {} in {}", printable(tensor.full_name),
                            shape_string(tensor.shape), tensor.file));
    return nullptr;
  }
  const TensorSpec& spec = found->second;
  return spec.presence == TensorPresence::kRedundant ? nullptr : &spec;
}

void TensorMatcher::add_problem(std::string_view problem) {
  ++problems_;
  if (problems_ > kMaxListedProblems) return;
  if (problems_ > 1) problem_text_ += "; ";
  problem_text_ += problem;
}

void TensorMatcher::add_missing() {
  for (const TensorSpec& spec : wanted_) {
    const auto [gate, up] = halves_of(spec);
    const bool fused = seen_.contains(spec.name);
    if (!gate.name.empty()) {
      const bool halves[] = {seen_.contains(gate.name), seen_.contains(up.name)};
      if (fused && (halves[0] || halves[1])) {
        add_problem(fmt::format("{} is there fused and not fused", spelling_(spec.name)));
      }
      if (halves[0] && halves[1]) continue;
    }
    if (spec.presence != TensorPresence::kRequired || fused) continue;
    add_problem(fmt::format("missing {} {}", spelling_(spec.name), shape_string(spec.shape)));
  }
}

Result<ResolvedTensors> TensorMatcher::finish() {
  add_missing();
  if (problems_ == 0) return std::move(result_);
  const std::size_t hidden = problems_ > kMaxListedProblems ? problems_ - kMaxListedProblems : 0;
  return invalid_argument("{}: {} tensor{} do{} not fit the configuration: {}{}", path_, problems_,
                          problems_ == 1 ? "" : "s", problems_ == 1 ? "es" : "", problem_text_,
                          hidden == 0 ? "" : fmt::format("; and {} more", hidden));
}

}  // namespace kakeya
