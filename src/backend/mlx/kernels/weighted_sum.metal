// The sum over ranks, ascending, of factors [T, R] times rows x [T, R, width]. A thread has a number.
const uint ranks = x_shape[1];
const uint width = x_shape[2];
const uint row = thread_position_in_grid.x / width;
const uint column = thread_position_in_grid.x % width;
float sum = 0;
for (uint rank = 0; rank < ranks; ++rank) {
  sum += x[(row * ranks + rank) * width + column] * factors[row * ranks + rank];
}
out[thread_position_in_grid.x] = sum;
