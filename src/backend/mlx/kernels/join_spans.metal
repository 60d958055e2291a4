// Joins sums [R, C, E] and parts [R, C, 2] of spans, as attention_span.metal has them, to [R, E].
// Spans are taken in order; one of which a query sees nothing adds zeros. A thread has a number of
// the output.
const uint spans = sums_shape[1];
const uint width = sums_shape[2];
const uint row = thread_position_in_grid.x / width;
const uint column = thread_position_in_grid.x % width;
float largest = -INFINITY;
for (uint span = 0; span < spans; ++span) {
  largest = metal::max(largest, parts[(row * spans + span) * 2]);
}
float sum = 0;
float total = 0;
for (uint span = 0; span < spans; ++span) {
  const uint place = row * spans + span;
  const float factor = metal::exp(parts[place * 2] - largest);
  sum += factor * sums[place * width + column];
  total += factor * parts[place * 2 + 1];
}
out[thread_position_in_grid.x] = sum / total;
