// activation(x) * other, of equal shapes: SiLU, or GELU as tanh gives it. A thread has a number.
const uint i = thread_position_in_grid.x;
const float value = x[i];
const float inner = 0.7978845608028654f * (value + 0.044715f * (value * value * value));
const float active = is_silu ? value / (1.0f + metal::exp(-value)) : 0.5f * value * (1.0f + metal::precise::tanh(inner));
out[i] = active * other[i];
