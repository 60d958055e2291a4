#include "backend/batch.h"

namespace kakeya {

std::int64_t Batch::logit_rows() const {
  std::int64_t rows = 0;
  for (const Segment& segment : segments) rows += segment.logit_rows;
  return rows;
}

bool Batch::logit_rows_are_last() const {
  bool wanted = false;
  for (const Segment& segment : segments) {
    if (wanted && segment.logit_rows != segment.rows) return false;
    wanted = wanted || segment.logit_rows > 0;
  }
  return true;
}

BatchBuilder::BatchBuilder(std::int64_t max_rows, std::int64_t max_sequences) {
  ids_.reserve(static_cast<std::size_t>(max_rows));
  positions_.reserve(static_cast<std::size_t>(max_rows));
  segments_.reserve(static_cast<std::size_t>(max_sequences));
}

BatchBuilder BatchBuilder::one(std::span<const TokenId> ids,
                               Position first,
                               std::span<const KvLayer> layers,
                               std::int64_t logit_rows) {
  BatchBuilder builder;
  builder.add(ids, {}, first, layers, logit_rows);
  return builder;
}

BatchBuilder BatchBuilder::one_of_rows(std::int64_t rows,
                                       Position first,
                                       std::span<const KvLayer> layers) {
  BatchBuilder builder;
  builder.add_rows(rows, first, layers);
  return builder;
}

void BatchBuilder::clear() {
  ids_.clear();
  positions_.clear();
  segments_.clear();
}

void BatchBuilder::add(std::span<const TokenId> ids,
                       std::span<const TokenId> more,
                       Position first,
                       std::span<const KvLayer> layers,
                       std::int64_t logit_rows) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ids_.insert(ids_.end(), more.begin(), more.end());
  add_rows(static_cast<std::int64_t>(ids.size() + more.size()), first, layers);
  segments_.back().logit_rows = logit_rows;
}

void BatchBuilder::add_rows(std::int64_t rows, Position first, std::span<const KvLayer> layers) {
  const auto first_row = static_cast<std::int64_t>(positions_.size());
  segments_.push_back({.first_row = first_row, .rows = rows, .layers = layers});
  for (std::int64_t t = 0; t < rows; ++t) positions_.push_back(first + t);
}

}  // namespace kakeya
