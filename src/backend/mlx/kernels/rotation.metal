// Vectors x [T, V, 2 * half], turned by angles whose cosines and sines are [T, half]. A thread has a pair.
const uint half_width = cos_shape[1];
const uint pair = thread_position_in_grid.x;
const uint vector = pair / half_width;
const uint i = pair % half_width;
const uint low = vector * 2 * half_width + i;
const uint high = low + half_width;
const uint angle = vector / x_shape[1] * half_width + i;
const float a = x[low];
const float b = x[high];
out[low] = a * cos[angle] - b * sin[angle];
out[high] = b * cos[angle] + a * sin[angle];
