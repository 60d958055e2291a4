#include "code_choice.h"

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <span>

#include "projection_matrices.h"

namespace kakeya::train {
namespace {

using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr std::span kStored = std::span(kKvFormats).subspan(1);  // f32 loses nothing

// Rows of a document, `vectors` of a position, but those that sessions keep for ever.
Eigen::Map<const Floats> evicted_rows(const std::vector<float>& rows,
                                      const CapturedDocument& document,
                                      std::int64_t vectors = 1) {
  const std::int64_t width = std::ssize(rows) / (document.count * vectors);
  return {rows.data() + kSink * vectors * width, (document.count - kSink) * vectors, width};
}

// Each vector of `width` numbers as it is read back.
Floats read_back(KvFormat format, const Floats& vectors) {
  Floats back(vectors.rows(), vectors.cols());
  std::vector<std::byte> bytes(static_cast<std::size_t>(kv_vector_bytes(format, vectors.cols())));
  for (Eigen::Index row = 0; row < vectors.rows(); ++row) {
    encode_kv(format, vectors.row(row).data(), vectors.cols(), bytes.data());
    decode_kv(format, bytes.data(), vectors.cols(), back.row(row).data());
  }
  return back;
}

// Squares of rows, and of what is left of them; one a layer and side.
struct Squares {
  double all = 0.0;
  double left = 0.0;

  void add(const Eigen::Map<const Floats>& rows, const Floats& made) {
    all += rows.cast<double>().squaredNorm();
    left += (rows - made).cast<double>().squaredNorm();
  }
};

double mean_explained(std::span<const Squares> squares) {
  double sum = 0.0;
  for (const Squares& each : squares) sum += each.all > 0.0 ? 1.0 - each.left / each.all : 0.0;
  return squares.empty() ? 0.0 : sum / static_cast<double>(squares.size());
}

// Keys, or values where those are other rows.
const std::vector<float>& rows_of(const CapturedDocument& document, std::size_t layer, Side side) {
  return side == Side::kKeys || document.values[layer].empty() ? document.keys[layer]
                                                               : document.values[layer];
}

}  // namespace

std::vector<CodeChoice> code_choices(std::int64_t most_bytes, std::int64_t most_rank) {
  std::vector<CodeChoice> choices;
  for (const KvFormat format : kStored) {
    for (std::int64_t rank = std::min(most_rank, most_bytes * 2); rank > 0; --rank) {
      if (!kv_format_supports(format, rank)) continue;
      const std::int64_t bytes = kv_vector_bytes(format, rank);
      if (bytes > most_bytes) continue;
      choices.push_back({.format = format, .rank = rank, .bytes = bytes});
      break;
    }
  }
  return choices;
}

void measure_choices(const CapturePlan& plan,
                     const ProjectionMoments& moments,
                     const ReducedRankFit& fit,
                     std::span<const CapturedDocument> documents,
                     std::span<CodeChoice> choices) {
  const Floats encoder = fit.encoder.cast<float>();
  for (CodeChoice& choice : choices) {
    std::vector<Squares> squares(plan.layers.size() * kSides.size());
    for (const CapturedDocument& document : documents) {
      const Floats codes = read_back(choice.format, evicted_rows(document.key_features, document) *
                                                        encoder.topRows(choice.rank).transpose());
      for (std::size_t i = 0; i < squares.size(); ++i) {
        const std::size_t layer = i / kSides.size();
        const Side side = kSides[i % kSides.size()];
        const auto index = static_cast<std::size_t>(plan.layers[layer].cache_index);
        const Floats decoder = fit.decoders[moments.target(side, index)].cast<float>();
        squares[i].add(evicted_rows(rows_of(document, layer, side), document),
                       codes * decoder.leftCols(choice.rank).transpose());
      }
    }
    choice.explained = mean_explained(squares);
  }
}

std::vector<CodeChoice> measure_rows(const CapturePlan& plan,
                                     std::span<const CapturedDocument> documents) {
  std::vector<CodeChoice> choices;
  for (const KvFormat format : kStored) {
    CodeChoice choice{.format = format};
    bool is_supported = true;
    std::vector<Squares> squares;
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
      const CapturePlan::Layer& of = plan.layers[layer];
      is_supported = is_supported && kv_format_supports(format, of.head_dim);
      if (!is_supported) break;
      const std::int64_t vectors = (of.values_are_keys ? 1 : 2) * of.num_kv_heads;
      choice.rank += vectors * of.head_dim;
      choice.bytes += vectors * kv_vector_bytes(format, of.head_dim);
      for (const Side side : kSides) {
        Squares& sum = squares.emplace_back();
        for (const CapturedDocument& document : documents) {
          const auto heads =
              evicted_rows(rows_of(document, layer, side), document, of.num_kv_heads);
          sum.add(heads, read_back(format, heads));
        }
      }
    }
    if (!is_supported) continue;
    choice.explained = mean_explained(squares);
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace kakeya::train
