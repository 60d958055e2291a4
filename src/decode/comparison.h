// Ways to keep rows that exist to be compared with the ways that a user can choose: `kakeya eval
// kv` and tests reach them, through EngineImpl.
#pragma once

namespace kakeya {

struct Comparison {
  // Before each token, all of the text is run again from nothing. Plain steps only, and slow. The
  // output is the same: what a row is restored from never changes.
  bool recompute = false;
  // Store keys and values of layers whose keys follow from their values (attention_k_eq_v), instead
  // of one vector: twice the memory.
  bool kv_pairs = false;

  bool operator==(const Comparison&) const = default;
};

}  // namespace kakeya
