#include "trainer_state.h"

#include <charconv>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/safetensors.h"

namespace kakeya::train {
namespace {

constexpr const char* kFormat = "kakeya.train.state/1";

TensorView view_of(const std::string& name, const Shape& shape, const std::vector<float>& values) {
  TensorView view;
  view.name = name;
  view.dtype = DType::kF32;
  view.shape = shape;
  view.data = std::as_bytes(std::span(values)).data();
  return view;
}

Status read_values(const SafetensorsFile& file,
                   const DrafterTensor& like,
                   const std::string& part,
                   std::vector<float>& values) {
  const std::string name = part + like.name;
  const TensorView* view = file.find(name);
  if (view == nullptr || view->dtype != DType::kF32 || view->shape != like.shape) {
    return invalid_argument(
        "{}: expected the state of a training of these weights, got one without {} of its shape",
        file.path(), name);
  }
  std::memcpy(values.data(), view->data, values.size() * sizeof(float));
  return {};
}

std::string text_of(const SafetensorsMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

}  // namespace

Status save_state(const std::string& path, const TrainerState& state) {
  std::vector<std::string> names;
  names.reserve(3 * state.weights.size());  // views look at them
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < state.weights.size(); ++i) {
    const DrafterTensor& tensor = state.weights[i];
    const std::vector<float>* parts[] = {&tensor.values, &state.moments.first()[i],
                                         &state.moments.second()[i]};
    const char* prefixes[] = {"weights.", "first.", "second."};
    for (std::size_t part = 0; part < 3; ++part) {
      names.push_back(prefixes[part] + tensor.name);
      views.push_back(view_of(names.back(), tensor.shape, *parts[part]));
    }
  }
  return write_safetensors(path, views,
                           {{"format", kFormat},
                            {"steps_done", std::to_string(state.steps_done)},
                            {"settings", state.settings},
                            {"record", state.record}});
}

Result<TrainerState> load_state(const std::string& path, const DrafterWeights& like) {
  KAKEYA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  const SafetensorsMetadata& metadata = file.metadata();
  const std::string steps = text_of(metadata, "steps_done");
  TrainerState state(like);
  const auto [end, problem] =
      std::from_chars(steps.data(), steps.data() + steps.size(), state.steps_done);
  if (text_of(metadata, "format") != kFormat || problem != std::errc() || state.steps_done < 0) {
    return invalid_argument("{}: expected the state of a training ({}), got another file", path,
                            kFormat);
  }
  state.settings = text_of(metadata, "settings");
  state.record = text_of(metadata, "record");
  for (std::size_t i = 0; i < like.size(); ++i) {
    KAKEYA_TRY(read_values(file, like[i], "weights.", state.weights[i].values));
    KAKEYA_TRY(read_values(file, like[i], "first.", state.moments.first()[i]));
    KAKEYA_TRY(read_values(file, like[i], "second.", state.moments.second()[i]));
  }
  return state;
}

Status check_same_settings(const std::string& path,
                           const std::string& stored,
                           const nlohmann::ordered_json& mine,
                           std::string_view free) {
  const auto text_of_value = [](const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  const auto theirs = nlohmann::ordered_json::parse(stored, nullptr, false);
  for (const auto& [name, value] : mine.items()) {
    if (name == free) continue;
    const auto other =
        theirs.is_object() && theirs.contains(name) ? theirs[name] : nlohmann::ordered_json();
    if (other == value) continue;
    return error(StatusCode::kFailedPrecondition,
                 "{}: expected a training with the same options, model and texts, got {} {} there "
                 "and {} here",
                 path, name, text_of_value(other), text_of_value(value));
  }
  return {};
}

}  // namespace kakeya::train
