#include "formats/gguf.h"

#include <algorithm>
#include <utility>

#include "formats/file_kind.h"
#include "formats/gguf_cursor.h"
#include "formats/gguf_layout.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

// The least that an entry of each list takes: a name of one byte, and a value of one byte or a
// tensor without axes.
constexpr std::uint64_t kLeastMetadataBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kLeastTensorBytes = 8 + 1 + 4 + 4 + 8;
// Ends of tensors are no larger, so that sums of them do not overflow.
constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 60;

Status check_count(std::string_view what, std::uint64_t count, std::uint64_t most) {
  if (count > kMaxGgufEntries) {
    return invalid_argument("expected at most {} {}, got {}", kMaxGgufEntries, what, count);
  }
  if (count > most) {
    return data_loss("{} {} do not fit the bytes that are left", count, what);
  }
  return {};
}

Status check_version(std::uint32_t version) {
  if (version >= kOldestGgufVersion && version <= kGgufVersion) return {};
  // The number's bytes in the other order.
  if (version != 0 && (version & 0xffffU) == 0) {
    return error(StatusCode::kUnimplemented, "big-endian files are not supported");
  }
  return error(StatusCode::kUnimplemented, "version {} is not supported; expected {} or {}",
               version, kOldestGgufVersion, kGgufVersion);
}

Result<GgufEncoding> read_encoding(GgufCursor& cursor) {
  KAKEYA_ASSIGN_OR_RETURN(const auto number, cursor.read<std::uint32_t>("type"));
  const GgufTensorType* type = find_gguf_tensor_type(number);
  if (type != nullptr && type->encoding) return *type->encoding;
  return error(StatusCode::kUnimplemented, "type {} ({}) is not supported; expected one of {}",
               number, type != nullptr ? type->name : "unknown", supported_gguf_tensor_types());
}

// Slowest axis first.
Result<Shape> read_shape(GgufCursor& cursor) {
  KAKEYA_ASSIGN_OR_RETURN(const auto axes, cursor.read<std::uint32_t>("number of axes"));
  if (axes > kMaxGgufAxes) {
    return invalid_argument("shape: expected at most {} axes, got {}", kMaxGgufAxes, axes);
  }
  Shape shape(axes);
  for (std::uint32_t i = axes; i-- > 0;) {
    // gguf_tensor_bytes() refuses sizes that do not fit and are therefore negative.
    KAKEYA_ASSIGN_OR_RETURN(shape[i], cursor.read<std::int64_t>("size of an axis"));
  }
  return shape;
}

}  // namespace

// Fills a GgufFile from its bytes, front to back.
class GgufFile::Reader {
 public:
  Reader(GgufFile& file, bool may_be_cut)
      : file_(file), cursor_(file.file_.bytes()), may_be_cut_(may_be_cut) {}

  Status run() {
    KAKEYA_TRY(read_header());
    for (std::uint64_t i = 0; i < num_metadata_; ++i) KAKEYA_TRY(read_metadata());
    KAKEYA_TRY(read_alignment());
    for (std::uint64_t i = 0; i < num_tensors_; ++i) KAKEYA_TRY(read_tensor());
    return place_tensors();
  }

 private:
  // Where a tensor's data is said to be.
  struct Extent {
    std::uint64_t offset;  // in the data
    std::uint64_t bytes;
  };

  Status read_header() {
    KAKEYA_ASSIGN_OR_RETURN(const auto magic, cursor_.take(kGgufMagic.size(), "magic number"));
    if (as_text(magic) != kGgufMagic) {
      return invalid_argument("expected a file that begins with {}, got \"{}\"", kGgufMagic,
                              printable(as_text(magic)));
    }
    KAKEYA_ASSIGN_OR_RETURN(file_.version_, cursor_.read<std::uint32_t>("version"));
    KAKEYA_TRY(check_version(file_.version_));
    KAKEYA_ASSIGN_OR_RETURN(num_tensors_, cursor_.read<std::uint64_t>("number of tensors"));
    KAKEYA_ASSIGN_OR_RETURN(num_metadata_, cursor_.read<std::uint64_t>("number of keys"));
    KAKEYA_TRY(check_count("tensors", num_tensors_, cursor_.remaining() / kLeastTensorBytes));
    return check_count("keys", num_metadata_, cursor_.remaining() / kLeastMetadataBytes);
  }

  Status read_metadata() {
    KAKEYA_ASSIGN_OR_RETURN(const auto bytes, cursor_.read_text("key"));
    const std::string_view key = as_text(bytes);
    KAKEYA_TRY(check_gguf_name("key", key));
    if (!file_.keys_.emplace(key, file_.metadata_.size()).second) {
      return invalid_argument("key {}: expected it once, got it twice", printable(key));
    }
    auto value = read_value();
    if (!value) return Unexpected(value.error().with_context("key " + printable(key)));
    file_.metadata_.push_back({key, *value});
    return {};
  }

  Result<GgufValue> read_value() {
    KAKEYA_ASSIGN_OR_RETURN(const GgufValueType type, read_gguf_value_type(cursor_));
    return read_gguf_value(cursor_, type, 0);
  }

  Status read_alignment() {
    file_.alignment_ = kGgufDefaultAlignment;
    const GgufValue* value = file_.find_value(kGgufAlignmentKey);
    if (value == nullptr) return {};
    if (value->type != GgufValueType::kUint32) {
      return invalid_argument("key {}: expected a uint32, got {}", kGgufAlignmentKey,
                              gguf_value_type_name(value->type));
    }
    KAKEYA_ASSIGN_OR_RETURN(file_.alignment_,
                            GgufCursor(value->bytes).read<std::uint32_t>(kGgufAlignmentKey));
    return check_gguf_alignment(file_.alignment_);
  }

  Status read_tensor() {
    KAKEYA_ASSIGN_OR_RETURN(const auto bytes, cursor_.read_text("tensor name"));
    GgufTensor tensor;
    tensor.name = as_text(bytes);
    KAKEYA_TRY(check_gguf_name("tensor name", tensor.name));
    if (!file_.names_.emplace(tensor.name, file_.tensors_.size()).second) {
      return invalid_argument("tensor {}: expected it once, got it twice", printable(tensor.name));
    }
    auto extent = read_description(tensor);
    if (!extent) {
      return Unexpected(extent.error().with_context("tensor " + printable(tensor.name)));
    }
    extents_.push_back(*extent);
    file_.tensors_.push_back(std::move(tensor));
    return {};
  }

  Result<Extent> read_description(GgufTensor& tensor) {
    KAKEYA_ASSIGN_OR_RETURN(tensor.shape, read_shape(cursor_));
    KAKEYA_ASSIGN_OR_RETURN(tensor.encoding, read_encoding(cursor_));
    Extent extent{};
    KAKEYA_ASSIGN_OR_RETURN(extent.bytes, gguf_tensor_bytes(tensor.shape, tensor.encoding));
    KAKEYA_ASSIGN_OR_RETURN(extent.offset, cursor_.read<std::uint64_t>("offset"));
    if (extent.offset % file_.alignment_ != 0) {
      return invalid_argument("offset: expected a multiple of {}, got {}", file_.alignment_,
                              extent.offset);
    }
    return extent;
  }

  // Everything else has been read; the rest, from the next multiple of the alignment on, is data.
  Status place_tensors() {
    const std::span<const std::byte> bytes = file_.file_.bytes();
    const std::uint64_t begin = align_gguf_offset(cursor_.position(), file_.alignment_);
    const auto data = bytes.subspan(std::min<std::uint64_t>(begin, bytes.size()));
    file_.whole_bytes_ = begin;
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      const Extent& extent = extents_[i];
      const bool is_there =
          extent.offset <= data.size() && extent.bytes <= data.size() - extent.offset;
      const bool may_be_anywhere =
          extent.bytes <= kMostFileBytes && extent.offset <= kMostFileBytes - extent.bytes;
      if (!is_there && !(may_be_cut_ && may_be_anywhere)) {
        return data_loss("tensor {}: {} bytes at offset {}, but the file holds {} bytes of data",
                         printable(file_.tensors_[i].name), extent.bytes, extent.offset,
                         data.size());
      }
      file_.whole_bytes_ = std::max(file_.whole_bytes_, begin + extent.offset + extent.bytes);
      if (!is_there) continue;
      file_.tensors_[i].data = data.subspan(extent.offset, extent.bytes);
    }
    return check_overlaps();
  }

  Status check_overlaps() const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      if (extents_[i].bytes > 0) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return extents_[a].offset < extents_[b].offset;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Extent& before = extents_[order[i - 1]];
      if (extents_[order[i]].offset >= before.offset + before.bytes) continue;
      return invalid_argument("tensor {} at offset {} overlaps {}, which ends at {}",
                              printable(file_.tensors_[order[i]].name), extents_[order[i]].offset,
                              printable(file_.tensors_[order[i - 1]].name),
                              before.offset + before.bytes);
    }
    return {};
  }

  GgufFile& file_;
  GgufCursor cursor_;
  bool may_be_cut_;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_metadata_ = 0;
  std::vector<Extent> extents_;  // of file_.tensors_
};

Result<GgufFile> GgufFile::open(const std::string& path) {
  return open(path, false);
}

Result<GgufFile> GgufFile::open_beginning(const std::string& path) {
  return open(path, true);
}

Result<GgufFile> GgufFile::open(const std::string& path, bool may_be_cut) {
  GgufFile result;
  KAKEYA_ASSIGN_OR_RETURN(result.file_, MappedFile::open(path));
  auto status = check_no_lfs_pointer(result.file_.bytes());
  if (status) status = Reader(result, may_be_cut).run();
  if (!status) {
    return Unexpected(status.error().with_context(path));
  }
  return result;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* GgufFile::find_value(std::string_view key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second].value;
}

Result<std::vector<float>> to_f32(const GgufTensor& tensor) {
  KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                          gguf_tensor_bytes(tensor.shape, tensor.encoding));
  if (tensor.data.size() != bytes) {
    return data_loss("tensor {}: expected {} bytes of data, got {}", printable(tensor.name), bytes,
                     tensor.data.size());
  }
  TensorView view = {
      .data = tensor.data.data(), .shape = tensor.shape, .name = std::string(tensor.name)};
  if (const auto* format = std::get_if<QuantizedFormat>(&tensor.encoding)) {
    view.quantization = *format;
  } else {
    view.dtype = std::get<DType>(tensor.encoding);
  }
  return to_f32(view);
}

}  // namespace kakeya
