// Routes rows to experts: finds the top_k largest of each row of logits [T, E], best first and of
// equal ones the lower number, and the softmax over them alone, times their scales [1, E]. A
// simdgroup has a row; its lane l looks after the experts l, l + 32, ..., of which there are 32 at
// most, and writes rank l.
constexpr uint none = 0xffffffff;
const uint lane = thread_index_in_simdgroup;
const uint num_experts = logits_shape[1];
const uint first = threadgroup_position_in_grid.x * num_experts;
uint taken = 0;  // bit i: expert lane + 32 * i
uint own_expert = 0;
float own_logit = 0;
float largest = 0;
for (uint rank = 0; rank < uint(top_k); ++rank) {
  uint best = none;
  float best_logit = -INFINITY;
  for (uint i = 0; lane + 32 * i < num_experts; ++i) {
    const float logit = logits[first + lane + 32 * i];
    if ((taken >> i & 1) == 0 && (best == none || logit > best_logit)) {
      best = lane + 32 * i;
      best_logit = logit;
    }
  }
  const float highest = metal::simd_max(best_logit);
  const uint found = metal::simd_min(best_logit == highest ? best : none);
  // No expert may be found where logits are not numbers.
  const uint chosen = metal::min(found, num_experts - 1);
  if (chosen % 32 == lane) taken |= 1u << (chosen / 32);
  if (rank == 0) largest = highest;
  if (rank == lane) {
    own_expert = chosen;
    own_logit = highest;
  }
}
const float share = lane < uint(top_k) ? metal::exp(own_logit - largest) : 0.0f;
const float total = metal::simd_sum(share);
if (lane < uint(top_k)) {
  const uint place = threadgroup_position_in_grid.x * uint(top_k) + lane;
  experts[place] = own_expert;
  weights[place] = share / total * scales[own_expert];
}
