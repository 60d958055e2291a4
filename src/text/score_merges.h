// Merges of vocabularies that have scores in place of them, as SentencePiece writes them.
#pragma once

#include <span>
#include <vector>

#include "kakeya/status.h"
#include "text/bpe.h"
#include "text/vocabulary.h"

namespace kakeya {

// Longer tokens are refused: the cost of one is the square of its bytes.
inline constexpr std::size_t kMostScoredBytes = 512;

// All pairs of candidates that make a candidate, ranked by the score of what they make, the best
// first; equal scores share a rank. In order of rank, then of the ids made, left and right.
// `candidates` and `scores` have an element for each id of the vocabulary.
//
// Source: SentencePiece, bpe_model.cc (Model::SampleEncode).
//
// Errors: kDataLoss for a candidate of more than kMostScoredBytes or more merges than any
// vocabulary has.
Result<std::vector<Merge>> merges_of_scores(const Vocabulary& vocabulary,
                                            const std::vector<bool>& candidates,
                                            std::span<const double> scores);

}  // namespace kakeya
