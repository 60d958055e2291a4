#include "convert/source_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/mapped_file.h"
#include "base/status.h"
#include "formats/gguf_config.h"
#include "formats/model_tensors.h"
#include "formats/tensor_request.h"
#include "formats/tied_head.h"

namespace kakeya {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFusedExperts = "experts.gate_up_proj";

// The tensor as it is there: whole, as the gate and up halves of fused experts, or expert by
// expert.
std::optional<TensorRows> find_rows(const ResolvedTensors& tensors, const std::string& name) {
  if (const TensorView* view = tensors.find(name)) return TensorRows(*view);
  const auto matrices = tensors.find_matrices(name);
  if (!matrices.empty()) return TensorRows::of_matrices({matrices});
  if (!name.ends_with(kFusedExperts)) return std::nullopt;
  const std::string prefix = name.substr(0, name.size() - kFusedExperts.size());
  const TensorView* gate = tensors.find(prefix + "experts.gate_proj");
  const TensorView* up = tensors.find(prefix + "experts.up_proj");
  if (gate != nullptr && up != nullptr) return TensorRows({*gate, *up});
  const auto gates = tensors.find_matrices(prefix + "experts.gate_proj");
  const auto ups = tensors.find_matrices(prefix + "experts.up_proj");
  if (gates.empty() || ups.empty()) return std::nullopt;
  return TensorRows::of_matrices({gates, ups});
}

// The numbers that the network uses, of what the file holds.
void undo_form(const TensorSpec& spec, bool gguf, TensorRows& rows) {
  if (gguf && spec.paired_rows != 0) rows.reorder(spec.paired_rows);
  if (!gguf && spec.less != 0.0F) rows.shift(spec.less);
}

// The tensors that the network uses.
template <typename Files>
Status add_tensors(const Files& files, SourceModel& model) {
  const std::vector<TensorSpec> wanted =
      model.drafter ? expected_tensors(*model.drafter) : expected_tensors(model.config);
  KAKEYA_ASSIGN_OR_RETURN(const ResolvedTensors tensors, resolve_tensors(files, wanted));
  const bool tied = !model.drafter && model.config.tie_word_embeddings;
  if (tied) {
    const Status copy = check_tied_head(tensors);
    if (!copy) return Unexpected(copy.error().with_context(model.path));
  }
  for (const TensorSpec& spec : wanted) {
    if (spec.presence == TensorPresence::kRedundant) continue;
    if (tied && spec.name == "lm_head.weight") continue;  // the embedding says the same
    if (auto rows = find_rows(tensors, spec.name)) {
      undo_form(spec, model.gguf != nullptr, *rows);
      model.tensors.push_back({spec.name, std::move(*rows), spec.less, spec.paired_rows});
    }
  }
  return {};
}

Status read_configuration(SourceModel& model) {
  if (is_drafter_folder(model.path)) {
    KAKEYA_ASSIGN_OR_RETURN(model.drafter, load_drafter_config(model.path));
    model.config = model.drafter->layers;
    return {};
  }
  KAKEYA_ASSIGN_OR_RETURN(model.config, load_model_config(model.path));
  return {};
}

Status open_folder(SourceModel& model) {
  std::error_code ignored;
  model.name = fs::canonical(model.path, ignored).filename().string();
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile config, MappedFile::open(model.path + "/config.json"));
  model.config_json.assign(reinterpret_cast<const char*>(config.bytes().data()),
                           config.bytes().size());
  KAKEYA_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(model.path));
  model.checkpoint = std::make_shared<const Checkpoint>(std::move(checkpoint));
  return add_tensors(*model.checkpoint, model);
}

// Narrows tensors that converters widen to F32 without need: norms, scales and routers.
void narrow_tensors(SourceModel& model) {
  const TensorRows& largest = largest_tensor(model).rows;
  if (largest.is_quantized()) return;
  const DType dtype = largest.dtype();
  for (NamedTensor& tensor : model.tensors) {
    if (!tensor.rows.is_quantized() && tensor.rows.dtype() == DType::kF32) {
      tensor.rows.narrow(dtype);
    }
  }
}

Status open_gguf(SourceModel& model) {
  KAKEYA_ASSIGN_OR_RETURN(GgufCheckpoint checkpoint, GgufCheckpoint::open(model.path));
  model.gguf = std::make_shared<const GgufCheckpoint>(std::move(checkpoint));
  KAKEYA_ASSIGN_OR_RETURN(const std::string_view name,
                          model.gguf->first().text_or("general.name", ""));
  model.name = name.empty() ? fs::path(model.path).stem().string() : std::string(name);
  KAKEYA_ASSIGN_OR_RETURN(model.config_json, gguf_config_json(*model.gguf));
  KAKEYA_TRY(add_tensors(*model.gguf, model));
  narrow_tensors(model);
  return {};
}

}  // namespace

TensorRows NamedTensor::rows_of_safetensors() const {
  TensorRows stored = rows;
  if (less != 0.0F) stored.shift(-less);
  return stored;
}

TensorRows NamedTensor::rows_of_gguf() const {
  TensorRows stored = rows;
  if (paired_rows != 0) stored.reorder_back(paired_rows);
  return stored;
}

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

Result<SourceModel> open_source_model(const std::string& path) {
  std::error_code ignored;
  const bool gguf = is_gguf_path(path);
  if (!gguf && !fs::is_directory(path, ignored)) {
    return error(StatusCode::kNotFound, "{}: expected the folder of a model or a GGUF file, got {}",
                 path, fs::exists(path, ignored) ? "another file" : "nothing of this name");
  }
  SourceModel model;
  model.path = path;
  KAKEYA_TRY(read_configuration(model));
  KAKEYA_TRY(gguf ? open_gguf(model) : open_folder(model));
  return model;
}

const NamedTensor& largest_tensor(const SourceModel& model) {
  return *std::max_element(model.tensors.begin(), model.tensors.end(),
                           [](const NamedTensor& a, const NamedTensor& b) {
                             return a.rows.stored_bytes() < b.rows.stored_bytes();
                           });
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
