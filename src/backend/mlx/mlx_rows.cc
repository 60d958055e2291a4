#include "backend/mlx/mlx_rows.h"

#include <cmath>
#include <vector>

#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {
namespace {

constexpr int kScaleBytes = sizeof(float);
constexpr int kBlock = 8;  // elements that share a code of e8

// Operations on one stream.
class Coder {
 public:
  explicit Coder(mx::Stream stream) : s_(stream) {}

  mx::array encode_int8(const mx::array& x) const;
  mx::array decode_int8(const mx::array& rows) const;
  mx::array encode_e8(const mx::array& x) const;
  mx::array decode_e8(const mx::array& rows) const;

 private:
  // A vector [..., E] as e8 is B blocks of kBlock elements, z [..., kBlock, B]: a column each.
  struct Points {
    mx::array numbers;   // [..., kBlock, B]
    mx::array distance;  // from z, squared, [..., 1, B]
  };
  struct Blocks {
    mx::array bytes;     // [..., B, kBlock / 2]
    mx::array distance;  // [..., 1, B]
  };
  struct Coded {
    mx::array bytes;  // [..., E / 2]
    mx::array error;  // squared, of a vector, [..., 1]
  };

  static mx::array number(float value) { return mx::array(value); }
  // The largest magnitude of the last axis, which stays with length 1; NaN if something there is
  // not finite.
  mx::array largest(const mx::array& x) const;
  mx::array rounded(const mx::array& x, float low, float high) const;
  // Codes -8 ... 7 along an axis as fields of 4 bits, half as many bytes: the first half of the
  // codes below the second.
  mx::array packed(const mx::array& codes, int axis) const;
  mx::array unpacked(const mx::array& fields, int axis) const;
  mx::array bytes_of(const mx::array& scale) const {
    return mx::view(mx::contiguous(scale, false, s_), mx::uint8, s_);
  }
  // Elements [begin, end) of the last axis; end 0: to its end.
  mx::array part(const mx::array& x, int begin, int end) const;
  mx::array joined(const mx::array& scale, const mx::array& codes) const {
    return mx::concatenate({bytes_of(scale), codes}, -1, s_);
  }
  mx::array turned(const mx::array& x) const;
  mx::array columns(const mx::array& x) const { return mx::swapaxes(x, -1, -2, s_); }
  mx::array as_bool(const mx::array& x) const { return mx::astype(x, mx::bool_, s_); }
  // 1 where a whole number is odd, else 0.
  mx::array odd(const mx::array& x) const { return mx::remainder(x, number(2.0F), s_); }
  mx::array element(const mx::array& z, int index) const;
  mx::array with_last(const mx::array& z, const mx::array& last) const;
  Points nearest_even(const mx::array& z) const;
  Blocks encode_blocks(const mx::array& z) const;
  mx::array decode_blocks(const mx::array& bytes) const;
  Coded with_step(const mx::array& y, const mx::array& step) const;

  mx::Stream s_;
};

mx::array Coder::largest(const mx::array& x) const {
  return mx::where(mx::all(mx::isfinite(x, s_), -1, true, s_),
                   mx::max(mx::abs(x, s_), -1, true, s_), number(NAN), s_);
}

mx::array Coder::rounded(const mx::array& x, float low, float high) const {
  return mx::clip(mx::round(x, s_), number(low), number(high), s_);
}

mx::array Coder::packed(const mx::array& codes, int axis) const {
  const mx::array lifted = mx::astype(mx::add(codes, number(8.0F), s_), mx::uint8, s_);
  const std::vector<mx::array> halves = mx::split(lifted, 2, axis, s_);
  return mx::bitwise_or(halves[0], mx::left_shift(halves[1], mx::array(4, mx::uint8), s_), s_);
}

mx::array Coder::unpacked(const mx::array& fields, int axis) const {
  const mx::array codes = mx::concatenate({mx::bitwise_and(fields, mx::array(15, mx::uint8), s_),
                                           mx::right_shift(fields, mx::array(4, mx::uint8), s_)},
                                          axis, s_);
  return mx::subtract(mx::astype(codes, mx::float32, s_), number(8.0F), s_);
}

mx::array Coder::part(const mx::array& x, int begin, int end) const {
  mx::Shape first(x.ndim(), 0);
  mx::Shape last = x.shape();
  first.back() = begin;
  if (end > 0) last.back() = end;
  return mx::contiguous(mx::slice(x, first, last, mx::Shape(x.ndim(), 1), s_), false, s_);
}

mx::array Coder::encode_int8(const mx::array& x) const {
  const mx::array most = largest(x);
  const mx::array shares = mx::multiply(mx::divide(x, most, s_), number(127.0F), s_);
  // Neither 0 nor NaN is above 0.
  const mx::array codes = mx::where(mx::greater(most, number(0.0F), s_),
                                    rounded(shares, -127.0F, 127.0F), number(0.0F), s_);
  return joined(mx::divide(most, number(127.0F), s_),
                mx::view(mx::astype(codes, mx::int8, s_), mx::uint8, s_));
}

mx::array Coder::decode_int8(const mx::array& rows) const {
  const mx::array scale = mx::view(part(rows, 0, kScaleBytes), mx::float32, s_);
  const mx::array codes = mx::view(part(rows, kScaleBytes, 0), mx::int8, s_);
  return mx::multiply(scale, mx::astype(codes, mx::float32, s_), s_);
}

mx::array Coder::turned(const mx::array& x) const {
  return mx::hadamard_transform(x, 1.0F / std::sqrt(static_cast<float>(x.shape(-1))), s_);
}

// Element `index` of each block, [..., 1, B].
mx::array Coder::element(const mx::array& z, int index) const {
  return mx::take(z, mx::array({index}, mx::int32), -2, s_);
}

// The elements of `z` with `last` for the last one of each block.
mx::array Coder::with_last(const mx::array& z, const mx::array& last) const {
  mx::Shape end = z.shape();
  end[z.ndim() - 2] -= 1;
  const mx::array others = mx::slice(z, mx::Shape(z.ndim(), 0), end, mx::Shape(z.ndim(), 1), s_);
  return mx::concatenate({others, last}, -2, s_);
}

// The nearest point as the reference finds it: each coordinate is rounded; if their sum is odd, the
// one moves to its other neighbour that loses least by it.
Coder::Points Coder::nearest_even(const mx::array& z) const {
  constexpr float kLow = -8.0F;
  constexpr float kHigh = 7.0F;
  const mx::array point = rounded(z, kLow, kHigh);
  const mx::array residual = mx::subtract(z, point, s_);
  const mx::array step =
      mx::where(mx::greater_equal(residual, number(0.0F), s_), number(1.0F), number(-1.0F), s_);
  const mx::array beside = mx::add(point, step, s_);
  const mx::array is_outside = mx::logical_or(mx::greater(beside, number(kHigh), s_),
                                              mx::less(beside, number(kLow), s_), s_);
  const mx::array other = mx::where(is_outside, mx::subtract(point, step, s_), beside, s_);
  const mx::array squares = mx::square(residual, s_);
  const mx::array extra = mx::subtract(mx::square(mx::subtract(z, other, s_), s_), squares, s_);
  const mx::array has_odd_sum = as_bool(odd(mx::sum(point, -2, true, s_)));
  const int size = z.shape(-2);
  const mx::array index = mx::reshape(mx::arange(size, s_), mx::Shape{size, 1}, s_);
  const mx::array is_cheapest = mx::equal(index, mx::argmin(extra, -2, true, s_), s_);
  const mx::array lost = mx::where(has_odd_sum, mx::min(extra, -2, true, s_), number(0.0F), s_);
  return {mx::where(mx::logical_and(has_odd_sum, is_cheapest, s_), other, point, s_),
          mx::add(mx::sum(squares, -2, true, s_), lost, s_)};
}

// The last field's lowest bit would follow from the sum, and tells the coset instead.
Coder::Blocks Coder::encode_blocks(const mx::array& z) const {
  const Points whole = nearest_even(z);
  const Points half = nearest_even(mx::subtract(z, number(0.5F), s_));
  const mx::array is_half = mx::less(half.distance, whole.distance, s_);
  const mx::array codes = mx::where(is_half, half.numbers, whole.numbers, s_);
  const mx::array last = element(codes, 7);
  const mx::array marked =
      mx::add(mx::subtract(last, odd(last), s_), mx::astype(is_half, mx::float32, s_), s_);
  return {columns(packed(with_last(codes, marked), -2)),
          mx::minimum(half.distance, whole.distance, s_)};
}

mx::array Coder::decode_blocks(const mx::array& bytes) const {
  const mx::array codes = unpacked(columns(bytes), -2);
  const mx::array last = element(codes, 7);
  const mx::array coset = odd(last);
  // The sum is even, so the last one's own bit is that of the others' sum.
  const mx::array parity = odd(mx::subtract(mx::sum(codes, -2, true, s_), last, s_));
  const mx::array own = mx::add(mx::subtract(last, coset, s_), parity, s_);
  return mx::add(with_last(codes, own), mx::multiply(coset, number(0.5F), s_), s_);
}

Coder::Coded Coder::with_step(const mx::array& y, const mx::array& step) const {
  mx::Shape shape = y.shape();
  shape.back() = kBlock;
  shape.push_back(y.shape(-1) / kBlock);
  const Blocks blocks = encode_blocks(mx::reshape(mx::divide(y, step, s_), shape, s_));
  mx::Shape bytes = y.shape();
  bytes.back() /= 2;
  const mx::array distance = mx::reshape(mx::sum(blocks.distance, -1, false, s_), step.shape(), s_);
  return {mx::reshape(blocks.bytes, bytes, s_), mx::multiply(distance, mx::square(step, s_), s_)};
}

mx::array Coder::encode_e8(const mx::array& x) const {
  const mx::array most = largest(x);
  const mx::array y = turned(mx::divide(x, most, s_));
  const mx::array normal = mx::multiply(mx::sqrt(mx::mean(mx::square(y, s_), -1, true, s_), s_),
                                        number(kE8NormalStep), s_);
  const mx::array covering =
      mx::divide(mx::max(mx::abs(y, s_), -1, true, s_), number(kE8Reach), s_);
  const Coded by_normal = with_step(y, normal);
  const Coded by_covering = with_step(y, covering);
  const mx::array covers = mx::less(by_covering.error, by_normal.error, s_);
  const mx::array step = mx::where(covers, covering, normal, s_);
  // Neither 0 nor NaN is above 0.
  const mx::array has_codes = mx::greater(most, number(0.0F), s_);
  const mx::array bytes =
      mx::where(has_codes, mx::where(covers, by_covering.bytes, by_normal.bytes, s_),
                mx::array(0, mx::uint8), s_);
  return joined(mx::where(has_codes, mx::multiply(step, most, s_), most, s_), bytes);
}

mx::array Coder::decode_e8(const mx::array& rows) const {
  const mx::array scale = mx::view(part(rows, 0, kScaleBytes), mx::float32, s_);
  const mx::array bytes = part(rows, kScaleBytes, 0);
  mx::Shape blocks = bytes.shape();
  blocks.back() = 2 * bytes.shape(-1) / kBlock;
  blocks.push_back(kBlock / 2);
  mx::Shape vectors = bytes.shape();
  vectors.back() *= 2;
  const mx::array z = decode_blocks(mx::reshape(bytes, blocks, s_));
  return mx::multiply(turned(mx::reshape(z, vectors, s_)), scale, s_);
}

}  // namespace

mx::Dtype dtype_of(KvFormat format) {
  if (format == KvFormat::kF32) return mx::float32;
  return format == KvFormat::kBf16 ? mx::bfloat16 : mx::uint8;
}

mx::array encode_rows(KvFormat format, const mx::array& x, mx::Stream stream) {
  const Coder coder(stream);
  switch (format) {
    case KvFormat::kInt8:
      return coder.encode_int8(x);
    case KvFormat::kE8:
      return coder.encode_e8(x);
    case KvFormat::kF32:
    case KvFormat::kBf16:
      break;
  }
  return mx::astype(x, dtype_of(format), stream);
}

mx::array decode_rows(KvFormat format, const mx::array& rows, mx::Stream stream) {
  const Coder coder(stream);
  switch (format) {
    case KvFormat::kInt8:
      return coder.decode_int8(rows);
    case KvFormat::kE8:
      return coder.decode_e8(rows);
    case KvFormat::kF32:
    case KvFormat::kBf16:
      break;
  }
  return mx::astype(rows, mx::float32, stream);
}

}  // namespace kakeya::mlx
