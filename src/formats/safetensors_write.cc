// Writing of safetensors files, declared in formats/safetensors.h and safetensors_writer.h.
#include <simdjson.h>

#include <iterator>
#include <set>

#include "base/status.h"
#include "formats/printable.h"
#include "formats/safetensors_writer.h"

namespace kakeya {

namespace {

// `text` as a JSON string; it must be valid UTF-8.
std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      result.push_back('\\');
      result.push_back(character);
    } else if (static_cast<unsigned char>(character) < 0x20) {
      fmt::format_to(std::back_inserter(result), "\\u{:04x}", static_cast<unsigned>(character));
    } else {
      result.push_back(character);
    }
  }
  return result + '"';
}

Status check_text(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return {};
  return invalid_argument("\"{}\" is not valid UTF-8", printable(text));
}

Result<std::string> make_header(std::span<const SafetensorsLayout> tensors,
                                const SafetensorsMetadata& metadata,
                                std::size_t alignment) {
  std::vector<std::string> fields;
  if (!metadata.empty()) {
    std::vector<std::string> entries;
    for (const auto& [key, value] : metadata) {
      KAKEYA_TRY(check_text(key));
      KAKEYA_TRY(check_text(value));
      entries.push_back(json_string(key) + ":" + json_string(value));
    }
    fields.push_back(fmt::format("\"__metadata__\":{{{}}}", fmt::join(entries, ",")));
  }
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const SafetensorsLayout& tensor : tensors) {
    KAKEYA_TRY(check_text(tensor.name));
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return invalid_argument("tensor name \"{}\" is reserved or used twice",
                              printable(tensor.name));
    }
    const std::uint64_t end = offset + tensor.bytes();
    fields.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                 json_string(tensor.name), dtype_name(tensor.dtype),
                                 fmt::join(tensor.shape, ","), offset, end));
    offset = end;
  }
  std::string header = fmt::format("{{{}}}", fmt::join(fields, ","));
  constexpr std::size_t kLength = sizeof(std::uint64_t);  // before the header
  header.resize((kLength + header.size() + alignment - 1) / alignment * alignment - kLength, ' ');
  return header;
}

}  // namespace

std::uint64_t SafetensorsLayout::bytes() const {
  return static_cast<std::uint64_t>(num_elements(shape)) * dtype_bytes(dtype);
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::span<const SafetensorsLayout> tensors,
                                                    const SafetensorsMetadata& metadata,
                                                    std::size_t alignment,
                                                    LinkedTarget linked) {
  const auto header = make_header(tensors, metadata, alignment);
  if (!header) return Unexpected(header.error().with_context(path));
  KAKEYA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, FileAccess::kUmask, linked));
  const std::uint64_t length = header->size();
  KAKEYA_TRY(file.write_at(0, std::as_bytes(std::span(&length, 1))));
  KAKEYA_TRY(file.write_at(sizeof(length), std::as_bytes(std::span(*header))));
  SafetensorsWriter writer(std::move(file));
  std::uint64_t offset = sizeof(length) + length;
  for (const SafetensorsLayout& tensor : tensors) {
    writer.extents_.push_back({offset, offset + tensor.bytes()});
    offset += tensor.bytes();
  }
  return writer;
}

Status SafetensorsWriter::write(std::size_t tensor, std::span<const std::byte> bytes) {
  Extent& extent = extents_[tensor];
  if (bytes.size() > extent.end - extent.next) {
    return error(StatusCode::kInternal, "{}: tensor {} gets more bytes than it has", file_.target(),
                 tensor);
  }
  KAKEYA_TRY(file_.write_at(extent.next, bytes));
  extent.next += bytes.size();
  return {};
}

Status SafetensorsWriter::commit() {
  for (const Extent& extent : extents_) {
    if (extent.next == extent.end) continue;
    return error(StatusCode::kInternal, "{}: a tensor lacks {} bytes", file_.target(),
                 extent.end - extent.next);
  }
  return file_.commit();
}

Status write_safetensors(const std::string& path,
                         std::span<const TensorView> tensors,
                         const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsLayout> layouts;
  for (const TensorView& tensor : tensors) {
    layouts.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  KAKEYA_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::create(path, layouts, metadata));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    KAKEYA_TRY(writer.write(i, {tensors[i].data, tensors[i].bytes()}));
  }
  return writer.commit();
}

}  // namespace kakeya
