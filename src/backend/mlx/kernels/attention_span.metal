// Attention of queries [K, Q, E] over one span of values [N, K, E] and their keys: those given, of the same
// shape, or, without has_keys, made of the values: a value times k_norm, turned by the angles of its position
// [N, E / 2]. A simdgroup has a span of a query; its lane l has the pairs (l + 32 * p, E / 2 + l + 32 * p) of
// each vector. What comes of it is relative to the largest score: sums [K, Q, C, E] of weights times values,
// and parts [K, Q, C, 2], that score and the sum of weights.
const uint lane = thread_index_in_simdgroup;
const uint span = threadgroup_position_in_grid.x;
const uint query = threadgroup_position_in_grid.y;
const uint head = threadgroup_position_in_grid.z;
const uint num_values = values_shape[0];
const uint num_heads = values_shape[1];
const uint width = values_shape[2];
const uint half_width = width / 2;
const uint place = (head * queries_shape[1] + query) * (spans_shape[0] - 1) + span;
float query_low[pairs];
float query_high[pairs];
float sum_low[pairs];
float sum_high[pairs];
for (uint p = 0; p < pairs; ++p) {
  const uint i = lane + 32 * p;
  const uint at = (head * queries_shape[1] + query) * width + i;
  query_low[p] = i < half_width ? queries[at] : 0.0f;
  query_high[p] = i < half_width ? queries[at + half_width] : 0.0f;
  sum_low[p] = 0;
  sum_high[p] = 0;
}
float largest = -INFINITY;
float total = 0;
for (uint row = uint(spans[span]); row < uint(spans[span + 1]); ++row) {
  if (!seen[query * num_values + row]) continue;
  float value_low[pairs];
  float value_high[pairs];
  float products = 0;
  for (uint p = 0; p < pairs; ++p) {
    const uint i = lane + 32 * p;
    if (i >= half_width) {
      value_low[p] = 0;
      value_high[p] = 0;
      continue;
    }
    const uint at = (row * num_heads + head) * width + i;
    value_low[p] = float(values[at]);
    value_high[p] = float(values[at + half_width]);
    float key_low;
    float key_high;
    if (has_keys) {
      key_low = float(keys[at]);
      key_high = float(keys[at + half_width]);
    } else {
      const float low = value_low[p] * k_norm[i];
      const float high = value_high[p] * k_norm[half_width + i];
      const float c = cos[row * half_width + i];
      const float s = sin[row * half_width + i];
      key_low = low * c - high * s;
      key_high = high * c + low * s;
    }
    products += query_low[p] * key_low + query_high[p] * key_high;
  }
  const float score = metal::simd_sum(products) * scale;
  const float highest = metal::max(largest, score);
  const float kept = metal::exp(largest - highest);
  const float weight = metal::exp(score - highest);
  largest = highest;
  total = total * kept + weight;
  for (uint p = 0; p < pairs; ++p) {
    sum_low[p] = sum_low[p] * kept + weight * value_low[p];
    sum_high[p] = sum_high[p] * kept + weight * value_high[p];
  }
}
for (uint p = 0; p < pairs; ++p) {
  const uint i = lane + 32 * p;
  if (i >= half_width) continue;
  sums[place * width + i] = sum_low[p];
  sums[place * width + half_width + i] = sum_high[p];
}
if (lane == 0) {
  parts[place * 2] = largest;
  parts[place * 2 + 1] = total;
}
