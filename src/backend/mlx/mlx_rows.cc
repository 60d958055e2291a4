#include "backend/mlx/mlx_rows.h"

#include <cmath>
#include <vector>

#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {
namespace {

constexpr int kScaleBytes = sizeof(float);
constexpr int kGroup = static_cast<int>(kInt4Group);
constexpr int kGroupScaleBytes = 2;  // of bf16

// Operations on one stream.
class Coder {
 public:
  explicit Coder(mx::Stream stream) : s_(stream) {}

  mx::array encode_int8(const mx::array& x) const;
  mx::array decode_int8(const mx::array& rows) const;
  mx::array encode_int4(const mx::array& x) const;
  mx::array decode_int4(const mx::array& rows) const;
  mx::array encode_rotated(const mx::array& x) const;
  mx::array decode_rotated(const mx::array& rows) const;

 private:
  struct Coded {
    mx::array codes;
    mx::array error;  // squared, of a vector
  };

  static mx::array number(float value) { return mx::array(value); }
  // The largest magnitude of the last axis, which stays with length 1; NaN if something there is
  // not finite.
  mx::array largest(const mx::array& x) const;
  mx::array rounded(const mx::array& x, float low, float high) const;
  // Codes -8 ... 7 [..., E] as fields of 4 bits [..., E / 2]: code i below code i + E / 2.
  mx::array packed(const mx::array& codes) const;
  mx::array unpacked(const mx::array& fields) const;
  mx::array bytes_of(const mx::array& scale) const {
    return mx::view(mx::contiguous(scale, false, s_), mx::uint8, s_);
  }
  // Elements [begin, end) of the last axis; end 0: to its end.
  mx::array part(const mx::array& x, int begin, int end) const;
  mx::array joined(const mx::array& scale, const mx::array& codes) const {
    return mx::concatenate({bytes_of(scale), codes}, -1, s_);
  }
  mx::array turned(const mx::array& x) const;
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

mx::array Coder::packed(const mx::array& codes) const {
  const mx::array lifted = mx::astype(mx::add(codes, number(8.0F), s_), mx::uint8, s_);
  const std::vector<mx::array> halves = mx::split(lifted, 2, -1, s_);
  return mx::bitwise_or(halves[0], mx::left_shift(halves[1], mx::array(4, mx::uint8), s_), s_);
}

mx::array Coder::unpacked(const mx::array& fields) const {
  const mx::array codes = mx::concatenate({mx::bitwise_and(fields, mx::array(15, mx::uint8), s_),
                                           mx::right_shift(fields, mx::array(4, mx::uint8), s_)},
                                          -1, s_);
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

mx::array Coder::encode_int4(const mx::array& x) const {
  mx::Shape shape = x.shape();
  shape.back() /= kGroup;
  shape.push_back(kGroup);
  const mx::array groups = mx::reshape(x, shape, s_);
  const mx::array at = mx::argmax(mx::abs(groups, s_), -1, true, s_);
  // Becomes -8, so that the scale may be negative.
  const mx::array extreme = mx::where(mx::all(mx::isfinite(groups, s_), -1, true, s_),
                                      mx::take_along_axis(groups, at, -1, s_), number(NAN), s_);
  const mx::array stored = mx::astype(mx::divide(extreme, number(-8.0F), s_), mx::bfloat16, s_);
  const mx::array scale = mx::astype(stored, mx::float32, s_);
  const mx::array is_usable =
      mx::logical_and(mx::isfinite(scale, s_), mx::not_equal(scale, number(0.0F), s_), s_);
  const mx::array codes =
      mx::where(is_usable, rounded(mx::divide(groups, scale, s_), -8.0F, 7.0F), number(0.0F), s_);
  shape.pop_back();
  shape.back() *= static_cast<int>(kInt4GroupBytes);
  return mx::reshape(joined(stored, packed(codes)), shape, s_);
}

mx::array Coder::decode_int4(const mx::array& rows) const {
  mx::Shape shape = rows.shape();
  shape.back() /= static_cast<int>(kInt4GroupBytes);
  shape.push_back(static_cast<int>(kInt4GroupBytes));
  const mx::array groups = mx::reshape(rows, shape, s_);
  const mx::array scale =
      mx::astype(mx::view(part(groups, 0, kGroupScaleBytes), mx::bfloat16, s_), mx::float32, s_);
  const mx::array numbers = mx::multiply(scale, unpacked(part(groups, kGroupScaleBytes, 0)), s_);
  shape.pop_back();
  shape.back() *= kGroup;
  return mx::reshape(numbers, shape, s_);
}

mx::array Coder::turned(const mx::array& x) const {
  return mx::hadamard_transform(x, 1.0F / std::sqrt(static_cast<float>(x.shape(-1))), s_);
}

Coder::Coded Coder::with_step(const mx::array& y, const mx::array& step) const {
  const mx::array z = mx::divide(y, step, s_);
  const mx::array codes = rounded(mx::subtract(z, number(0.5F), s_), -8.0F, 7.0F);
  const mx::array left = mx::subtract(mx::subtract(z, codes, s_), number(0.5F), s_);
  return {codes,
          mx::multiply(mx::sum(mx::square(left, s_), -1, true, s_), mx::square(step, s_), s_)};
}

mx::array Coder::encode_rotated(const mx::array& x) const {
  const mx::array most = largest(x);
  const mx::array y = turned(mx::divide(x, most, s_));
  const mx::array normal = mx::multiply(mx::sqrt(mx::mean(mx::square(y, s_), -1, true, s_), s_),
                                        number(kNormalStep), s_);
  const mx::array covering = mx::divide(mx::max(mx::abs(y, s_), -1, true, s_), number(8.0F), s_);
  const Coded by_normal = with_step(y, normal);
  const Coded by_covering = with_step(y, covering);
  const mx::array covers = mx::less(by_covering.error, by_normal.error, s_);
  const mx::array step = mx::where(covers, covering, normal, s_);
  const mx::array has_codes = mx::greater(most, number(0.0F), s_);
  const mx::array codes = mx::where(
      has_codes, mx::where(covers, by_covering.codes, by_normal.codes, s_), number(-8.0F), s_);
  return joined(mx::where(has_codes, mx::multiply(step, most, s_), most, s_), packed(codes));
}

mx::array Coder::decode_rotated(const mx::array& rows) const {
  const mx::array scale = mx::view(part(rows, 0, kScaleBytes), mx::float32, s_);
  const mx::array z = mx::add(unpacked(part(rows, kScaleBytes, 0)), number(0.5F), s_);
  return mx::multiply(turned(z), scale, s_);
}

}  // namespace

bool has_rows_of(KvFormat format) {
  return format != KvFormat::kD4 && format != KvFormat::kE8;
}

mx::Dtype dtype_of(KvFormat format) {
  if (format == KvFormat::kF32) return mx::float32;
  return format == KvFormat::kBf16 ? mx::bfloat16 : mx::uint8;
}

mx::array encode_rows(KvFormat format, const mx::array& x, mx::Stream stream) {
  const Coder coder(stream);
  switch (format) {
    case KvFormat::kInt8:
      return coder.encode_int8(x);
    case KvFormat::kInt4:
      return coder.encode_int4(x);
    case KvFormat::kRotatedInt4:
      return coder.encode_rotated(x);
    case KvFormat::kF32:
    case KvFormat::kBf16:
    case KvFormat::kD4:
    case KvFormat::kE8:
      break;
  }
  return mx::astype(x, dtype_of(format), stream);
}

mx::array decode_rows(KvFormat format, const mx::array& rows, mx::Stream stream) {
  const Coder coder(stream);
  switch (format) {
    case KvFormat::kInt8:
      return coder.decode_int8(rows);
    case KvFormat::kInt4:
      return coder.decode_int4(rows);
    case KvFormat::kRotatedInt4:
      return coder.decode_rotated(rows);
    case KvFormat::kF32:
    case KvFormat::kBf16:
    case KvFormat::kD4:
    case KvFormat::kE8:
      break;
  }
  return mx::astype(rows, mx::float32, stream);
}

}  // namespace kakeya::mlx
