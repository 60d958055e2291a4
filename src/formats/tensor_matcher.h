// The list that tensors of a checkpoint are ticked off on: which are wanted, which were there, and
// everything that does not fit, in one message. Knows nothing of files; formats/tensor_request.h
// and its readers offer what they find.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "formats/model_tensors.h"
#include "formats/tensor_request.h"
#include "kakeya/status.h"

namespace kakeya {

// A tensor as a checkpoint has it.
struct OfferedTensor {
  std::string name;            // as it would be wanted; empty if no name corresponds
  std::string_view full_name;  // as it is in the file
  const Shape& shape;
  std::string_view file;
};

class TensorMatcher {
 public:
  // How the checkpoint spells the name of a tensor.
  using Spelling = std::function<std::string(const std::string& name)>;

  // `path` is the checkpoint's, for the message. Where fused experts "gate_up_proj" [X, 2 N, K] are
  // wanted, "gate_proj" and "up_proj" [X, N, K] will do, or each expert's own.
  TensorMatcher(std::string_view path, std::span<const TensorSpec> wanted, Spelling spelling);

  // `fit(spec)` gives the tensor as it is wanted, or the error that names it.
  template <typename Fit>
  void offer(const OfferedTensor& tensor, Fit fit) {
    const TensorSpec* spec = accept(tensor);
    if (spec == nullptr) return;
    const Result<TensorView> view = fit(*spec);
    if (view) {
      result_.views_.emplace(tensor.name, *view);
    } else {
      add_problem(view.error().message());
    }
  }

  // The tensors that were matched. Errors: kInvalidArgument that lists all problems, the first 100
  // in words.
  Result<ResolvedTensors> finish();

 private:
  // The spec that the tensor is matched with; nullptr if it is not needed, or a problem, which is
  // noted.
  const TensorSpec* accept(const OfferedTensor& tensor);
  // Expects a matrix of this name if it is one expert's of a tensor that is wanted.
  void expect_single_expert(const std::string& name);
  void add_missing();
  // Puts the experts that are there one by one together; false if there is none of `tensor`.
  bool join_matrices(const TensorSpec& tensor);
  void add_problem(std::string_view problem);

  std::string path_;
  std::span<const TensorSpec> wanted_;
  Spelling spelling_;
  // Halves of fused experts included, and single ones that were offered.
  std::map<std::string, TensorSpec, std::less<>> specs_;
  std::set<std::string, std::less<>> in_matrices_;        // of which single experts were offered
  std::map<std::string, std::string, std::less<>> seen_;  // name -> full name
  std::size_t problems_ = 0;
  std::string problem_text_;
  ResolvedTensors result_;
};

}  // namespace kakeya
