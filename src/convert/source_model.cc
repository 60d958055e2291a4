#include "convert/source_model.h"

#include <filesystem>
#include <utility>

#include "base/mapped_file.h"
#include "base/status.h"
#include "formats/model_tensors.h"
#include "formats/tensor_request.h"

namespace kakeya {

namespace {

constexpr std::string_view kFusedExperts = "experts.gate_up_proj";

// The tensor as it is there: whole, or as the gate and up halves of fused experts.
std::optional<TensorRows> find_rows(const ResolvedTensors& tensors, const std::string& name) {
  if (const TensorView* view = tensors.find(name)) return TensorRows(*view);
  if (!name.ends_with(kFusedExperts)) return std::nullopt;
  const std::string prefix = name.substr(0, name.size() - kFusedExperts.size());
  const TensorView* gate = tensors.find(prefix + "experts.gate_proj");
  const TensorView* up = tensors.find(prefix + "experts.up_proj");
  if (gate == nullptr || up == nullptr) return std::nullopt;
  return TensorRows({*gate, *up});
}

Status add_tensors(std::span<const TensorSpec> wanted, SourceModel& model) {
  KAKEYA_ASSIGN_OR_RETURN(const ResolvedTensors tensors,
                          resolve_tensors(*model.checkpoint, wanted));
  for (const TensorSpec& spec : wanted) {
    if (spec.presence == TensorPresence::kRedundant) continue;
    if (auto rows = find_rows(tensors, spec.name)) {
      model.tensors.push_back({spec.name, std::move(*rows)});
    }
  }
  return {};
}

}  // namespace

std::uint64_t SourceModel::stored_bytes() const {
  std::uint64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) bytes += tensor.rows.stored_bytes();
  return bytes;
}

std::int64_t SourceModel::parameters() const {
  std::int64_t count = 0;
  for (const NamedTensor& tensor : tensors) count += num_elements(tensor.rows.shape());
  return count;
}

Result<SourceModel> open_source_model(const std::string& dir) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(dir, ignored)) {
    return error(StatusCode::kNotFound, "{}: expected the folder of a model, got {}", dir,
                 std::filesystem::exists(dir, ignored) ? "a file" : "nothing of this name");
  }
  SourceModel model;
  model.path = dir;
  if (is_drafter_folder(dir)) {
    KAKEYA_ASSIGN_OR_RETURN(model.drafter, load_drafter_config(dir));
    model.config = model.drafter->layers;
  } else {
    KAKEYA_ASSIGN_OR_RETURN(model.config, load_model_config(dir));
  }
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile config, MappedFile::open(dir + "/config.json"));
  model.config_json.assign(reinterpret_cast<const char*>(config.bytes().data()),
                           config.bytes().size());
  KAKEYA_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(dir));
  model.checkpoint = std::make_shared<const Checkpoint>(std::move(checkpoint));
  KAKEYA_TRY(add_tensors(
      model.drafter ? expected_tensors(*model.drafter) : expected_tensors(model.config), model));
  return model;
}

Status check_unquantized(const SourceModel& model) {
  for (const NamedTensor& tensor : model.tensors) {
    if (!tensor.rows.is_quantized()) continue;
    return invalid_argument("{}: {} is quantised already: quantise the original model", model.path,
                            tensor.name);
  }
  return {};
}

}  // namespace kakeya
