#include "formats/tensor_matcher.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr std::size_t kMaxListedProblems = 100;
constexpr std::string_view kFusedExperts = ".experts.gate_up_proj";
// Experts that stand in the place of an MLP may be there one by one.
constexpr std::string_view kSingleExperts = ".mlp.experts.";

// Gate and up of a fused tensor as tensors of their own; without names if it is none.
std::pair<TensorSpec, TensorSpec> halves_of(const TensorSpec& fused) {
  if (!fused.name.ends_with(kFusedExperts) || fused.shape.size() != 3) return {};
  const std::string prefix = fused.name.substr(0, fused.name.size() - kFusedExperts.size());
  const Shape shape = {fused.shape[0], fused.shape[1] / 2, fused.shape[2]};
  return {{.name = prefix + ".experts.gate_proj", .shape = shape},
          {.name = prefix + ".experts.up_proj", .shape = shape}};
}

// One expert's matrix of a tensor of all, "layers.0.mlp.experts.down_proj"; without a name if
// experts are never there one by one.
TensorSpec expert_of(const TensorSpec& all, std::int64_t expert) {
  const std::size_t at = all.name.find(kSingleExperts);
  if (at == std::string::npos || all.shape.size() != 3) return {};
  std::string name = all.name;
  name.insert(at + kSingleExperts.size(), std::to_string(expert) + ".");
  return {.name = name + ".weight", .shape = {all.shape[1], all.shape[2]}};
}

// The number of the expert in the name of its own matrix, and the name of the tensor of all;
// nothing for another name.
std::optional<std::pair<std::int64_t, std::string>> expert_in(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  const std::size_t at = name.find(kSingleExperts);
  if (at == std::string::npos || !name.ends_with(kSuffix)) return std::nullopt;
  const std::size_t begin = at + kSingleExperts.size();
  std::int64_t expert = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data() + begin, end, expert);
  if (failure != std::errc() || expert < 0 || stop == end || *stop != '.') return std::nullopt;
  const auto rest = static_cast<std::size_t>(stop + 1 - name.data());
  return std::pair(expert,
                   name.substr(0, begin) + name.substr(rest, name.size() - rest - kSuffix.size()));
}

bool same_encoding(const TensorView& a, const TensorView& b) {
  if (a.is_quantized() || b.is_quantized()) return false;  // no format has them so
  return a.dtype == b.dtype;
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

void TensorMatcher::expect_single_expert(const std::string& name) {
  const auto expert = expert_in(name);
  if (!expert) return;
  const auto all = specs_.find(expert->second);
  if (all == specs_.end() || all->second.shape.size() != 3) return;
  TensorSpec single = expert_of(all->second, expert->first);
  if (expert->first >= all->second.shape.front() || single.name != name) return;
  specs_.emplace(name, std::move(single));
  in_matrices_.insert(expert->second);
}

const TensorSpec* TensorMatcher::accept(const OfferedTensor& tensor) {
  expect_single_expert(tensor.name);
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
    for (const std::string* name : {&spec.name, &gate.name, &up.name}) {
      if (!seen_.contains(*name) || !in_matrices_.contains(*name)) continue;
      add_problem(fmt::format("{} is there for all experts and one by one", spelling_(*name)));
    }
    if (!gate.name.empty()) {
      const bool halves[] = {seen_.contains(gate.name) || join_matrices(gate),
                             seen_.contains(up.name) || join_matrices(up)};
      if (fused && (halves[0] || halves[1])) {
        add_problem(fmt::format("{} is there fused and not fused", spelling_(spec.name)));
      }
      if (halves[0] && halves[1]) continue;
    }
    if (spec.presence != TensorPresence::kRequired || fused || join_matrices(spec)) continue;
    add_problem(fmt::format("missing {} {}", spelling_(spec.name), shape_string(spec.shape)));
  }
}

bool TensorMatcher::join_matrices(const TensorSpec& tensor) {
  if (!in_matrices_.contains(tensor.name)) return false;
  std::vector<TensorView> matrices;
  std::string missing;
  for (std::int64_t expert = 0; expert < tensor.shape.front(); ++expert) {
    const TensorSpec single = expert_of(tensor, expert);
    if (missing.empty() && !seen_.contains(single.name)) missing = single.name;
    const auto found = result_.views_.find(single.name);
    if (found == result_.views_.end()) continue;
    matrices.push_back(std::move(found->second));
    result_.views_.erase(found);
  }
  if (!missing.empty()) {
    add_problem(fmt::format("missing {} {}, as other experts are there", missing,
                            shape_string({tensor.shape[1], tensor.shape[2]})));
  }
  for (const TensorView& matrix : matrices) {
    if (same_encoding(matrices.front(), matrix)) continue;
    add_problem(fmt::format("{}: expected floating point numbers of the type of {}",
                            printable(matrix.name), printable(matrices.front().name)));
    break;
  }
  result_.matrices_.emplace(tensor.name, std::move(matrices));
  return true;
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
