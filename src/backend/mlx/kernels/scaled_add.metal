// (a + b) * scale, of equal shapes. A thread has a number.
const uint i = thread_position_in_grid.x;
out[i] = (a[i] + b[i]) * scale;
