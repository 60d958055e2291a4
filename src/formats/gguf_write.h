// Writing of GGUF files, version 3, tensor by tensor. Does not interpret keys and names, but for
// general.alignment.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/gguf.h"
#include "kakeya/status.h"

namespace kakeya {

// A value of the metadata; GgufValue is one of another file, which must live so long.
using GgufMetadataValue = std::variant<std::uint8_t,
                                       std::int8_t,
                                       std::uint16_t,
                                       std::int16_t,
                                       std::uint32_t,
                                       std::int32_t,
                                       float,
                                       bool,
                                       std::string,
                                       std::uint64_t,
                                       std::int64_t,
                                       double,
                                       std::vector<std::uint8_t>,
                                       std::vector<std::int8_t>,
                                       std::vector<std::uint16_t>,
                                       std::vector<std::int16_t>,
                                       std::vector<std::uint32_t>,
                                       std::vector<std::int32_t>,
                                       std::vector<float>,
                                       std::vector<bool>,
                                       std::vector<std::string>,
                                       std::vector<std::uint64_t>,
                                       std::vector<std::int64_t>,
                                       std::vector<double>,
                                       GgufValue>;

struct GgufMetadata {
  std::string key;
  GgufMetadataValue value;
};

// Takes the next bytes of a tensor. Errors: kUnavailable if the disk refuses; kInvalidArgument for
// more bytes than the tensor has. The error must be passed on.
using GgufSink = std::function<Status(std::span<const std::byte>)>;

struct GgufTensorSource {
  std::string name;
  Shape shape;  // slowest axis first
  GgufEncoding encoding;
  // Gives all bytes of the tensor to the sink, in any pieces. Called once.
  std::function<Status(const GgufSink& sink)> write;
};

// Writes metadata and tensors in the given order; the data is aligned to general.alignment (uint32)
// where it is in the metadata, otherwise to 32 bytes. The same input gives the same bytes. The file
// appears complete or not at all (AtomicFile says how).
// Errors: kInvalidArgument for repeated or unwritable names, a shape that does not fit the
// encoding, an encoding that GGUF does not have, a wrong alignment, or a source that gives too few
// or too many bytes; kUnavailable if the disk refuses; those of the sources. Each names the path.
Status write_gguf(const std::string& path,
                  std::span<const GgufMetadata> metadata,
                  std::span<const GgufTensorSource> tensors);

}  // namespace kakeya
