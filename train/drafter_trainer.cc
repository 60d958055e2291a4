#include "drafter_trainer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "backend/mlx/mlx_status.h"
#include "base/status.h"
#include "formats/safetensors.h"

namespace kakeya::train {
namespace {

constexpr const char* kFormat = "kakeya.train.drafter.state/1";

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
        "{}: expected the state of a training of this drafter, got one without {} of its shape",
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

Result<LossAndGradients> loss_and_gradients(const DrafterNetwork& network,
                                            const DrafterWeights& weights,
                                            std::span<const LabelledBlocks> blocks,
                                            const DepthWeights& depth) {
  return mlx::caught([&]() -> Result<LossAndGradients> {
    const std::vector<mx::array> arrays = network.arrays(weights);
    std::vector<int> all(arrays.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    double sum = 0.0;
    double weight = 0.0;
    LossAndGradients result;
    for (const DrafterTensor& tensor : weights) {
      result.gradients.emplace_back(tensor.values.size(), 0.0F);
    }
    // One document after the other: their lengths differ, and memory is that of the longest.
    for (const LabelledBlocks& document : blocks) {
      auto graded = mx::value_and_grad(
          [&](const std::vector<mx::array>& x) {
            const LossSum loss = block_loss(network, x, document, depth);
            return std::vector<mx::array>{loss.loss, loss.weight};
          },
          all)(arrays);
      mx::eval(graded.second);
      sum += to_host(graded.first[0])[0];
      weight += to_host(graded.first[1])[0];
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::vector<float> gradient = to_host(graded.second[i]);
        for (std::size_t j = 0; j < gradient.size(); ++j) result.gradients[i][j] += gradient[j];
      }
    }
    result.loss = sum / weight;
    const auto share = static_cast<float>(1.0 / weight);
    for (std::vector<float>& gradient : result.gradients) {
      for (float& g : gradient) g *= share;
    }
    return result;
  });
}

Result<double> train_step(const DrafterNetwork& network,
                          std::span<const LabelledBlocks> blocks,
                          const DepthWeights& depth,
                          const AdamWOptions& options,
                          TrainerState& state) {
  KAKEYA_ASSIGN_OR_RETURN(const LossAndGradients made,
                          loss_and_gradients(network, state.weights, blocks, depth));
  if (!std::isfinite(made.loss)) {
    return data_loss("step {}: expected a finite loss, got {}: try a lower rate (--lr) than {}",
                     state.steps_done + 1, made.loss, options.rate);
  }
  const double length =
      state.moments.step(options, state.steps_done, made.gradients, state.weights);
  if (!std::isfinite(length)) {
    return data_loss("step {}: expected a finite gradient, got {}: try a lower rate (--lr) than {}",
                     state.steps_done + 1, length, options.rate);
  }
  ++state.steps_done;
  return made.loss;
}

Result<Acceptance> measure_acceptance(const DrafterNetwork& network,
                                      const DrafterWeights& weights,
                                      std::span<const LabelledBlocks> blocks) {
  return mlx::caught([&]() -> Result<Acceptance> {
    const std::vector<mx::array> arrays = network.arrays(weights);
    Acceptance acceptance;
    for (const LabelledBlocks& document : blocks) {
      acceptance.add(count_accepted(network, arrays, document));
    }
    return acceptance;
  });
}

}  // namespace kakeya::train
