// Runs texts through a model and sums up what a projection of it is fitted to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/projection_config.h"
#include "kakeya/status.h"
#include "row_recorder.h"
#include "runtime/engine_impl.h"
#include "second_moments.h"
#include "training_text.h"

namespace kakeya::train {

// One of the two halves of a projection, each with an encoder of its own.
enum class Side : std::uint8_t { kKeys, kValues };

// The moments of both sides. Where both have the same features they are summed once, and so are
// values that are keys.
class ProjectionMoments {
 public:
  ProjectionMoments(const ModelConfig& target, const ProjectionConfig& projection);

  // Adds the rows of a text from position `first` on. Errors: kInternal if the passes of the text
  // did not give all of them.
  Status add(const RecordedRows& rows, std::int64_t first, ThreadPool& pool);

  const SecondMoments& of(Side side) const {
    return side == Side::kValues && !shared_ ? values_ : keys_;
  }
  // Layers that have rows of their own, in order.
  const std::vector<std::int64_t>& layers() const { return layers_; }
  // Which of the targets of of(side) are that side of the layer number `index` of layers().
  std::size_t target(Side side, std::size_t index) const {
    return side == Side::kKeys ? index : value_targets_[index];
  }

 private:
  bool shared_;  // keys_ has all targets
  std::int64_t feature_width_;
  std::vector<std::int64_t> layers_;
  std::vector<std::int64_t> widths_;
  std::vector<std::size_t> value_targets_;
  SecondMoments keys_;
  SecondMoments values_;  // without targets if shared_
};

// Positions before it are kept for ever by the sessions that restore rows, as they do by default.
inline constexpr std::int64_t kSink = 4;

// Called with the number of a document behind its passes, when its rows are those recorded.
using OnDocument = std::function<void(std::size_t number)>;

// Runs each document in a session of its own and adds its rows from kSink on. `projection`: any of
// the engine's with the features that are wanted; `recorded`: of the engine's backend;
// `on_document` may be empty. Errors: of the session.
Status add_documents(EngineImpl& engine,
                     const Projection& projection,
                     RecordedRows& recorded,
                     std::span<const std::vector<TokenId>> documents,
                     const TextProgress& progress,
                     ThreadPool& pool,
                     ProjectionMoments& moments,
                     const OnDocument& on_document = {});

}  // namespace kakeya::train
