// The batch of one forward pass: rows of any number of sequences, side by side (continuous
// batching). Everything that changes from pass to pass is in here, so that operations need no
// positions.
//
//   row        0   1   2   3   4   5      three sequences in one pass
//   segment    [ prefill  ] [a][ block ]  a chunk of a prompt, a plain step, a block of drafts
//   position   64  65  66   9  31  32
//
// The rows of a segment are of consecutive positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kakeya/types.h"
#include "kv/kv_rows.h"

namespace kakeya {

// The rows of one sequence in a pass.
struct Segment {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  // The keys and values of the sequence's layers, those of these rows reserved. May be empty where
  // nothing attends.
  std::span<const KvLayer> layers;
  std::int64_t logit_rows = 0;  // of so many of its last rows logits are wanted
};

struct Batch {
  std::span<const TokenId> ids;         // [T]; may be empty where nothing is embedded
  std::span<const Position> positions;  // [T]
  std::span<const Segment> segments;    // in the order of their rows, which they cover

  std::int64_t rows() const { return static_cast<std::int64_t>(positions.size()); }  // T
  Position first_position(const Segment& segment) const {
    return positions[static_cast<std::size_t>(segment.first_row)];
  }
  std::int64_t logit_rows() const;
  // True if the rows whose logits are wanted are the last ones of the pass.
  bool logit_rows_are_last() const;
};

// Puts a batch together in memory of its own. After construction nothing allocates as long as a
// batch has no more rows and sequences than were announced.
class BatchBuilder {
 public:
  BatchBuilder() = default;
  BatchBuilder(std::int64_t max_rows, std::int64_t max_sequences);

  // The rows of one sequence alone.
  static BatchBuilder one(std::span<const TokenId> ids,
                          Position first,
                          std::span<const KvLayer> layers,
                          std::int64_t logit_rows);
  static BatchBuilder one_of_rows(std::int64_t rows,
                                  Position first,
                                  std::span<const KvLayer> layers);

  void clear();
  // Adds the rows of a sequence, from position `first` on: those of `ids` and then of `more`.
  void add(std::span<const TokenId> ids,
           std::span<const TokenId> more,
           Position first,
           std::span<const KvLayer> layers,
           std::int64_t logit_rows);
  // Adds a segment of `rows` rows without ids; all segments of a batch have ids, or none has.
  void add_rows(std::int64_t rows, Position first, std::span<const KvLayer> layers);

  // Valid until the builder changes.
  Batch batch() const { return {ids_, positions_, segments_}; }

 private:
  std::vector<TokenId> ids_;
  std::vector<Position> positions_;
  std::vector<Segment> segments_;
};

}  // namespace kakeya
