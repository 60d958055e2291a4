// The kinds of GGUF files that can be made, and which tensor gets which format in each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "convert/source_model.h"
#include "convert/tensor_encoder.h"

namespace kakeya {

enum class GgufMix : std::uint8_t {
  kUniform,   // all matrices alike, but for the output head
  kMoreBits,  // Q6_K for values and down projections of half of the layers
};

// A kind of file, by its name in commands ("q4_k_m").
struct GgufFileType {
  std::string_view name;
  std::uint32_t number;     // general.file_type: a fact of the format
  TensorEncoding encoding;  // of most matrices
  GgufMix mix = GgufMix::kUniform;
};

// Nothing for an unknown name.
std::optional<GgufFileType> find_gguf_file_type(std::string_view name);

// "f32, f16, bf16, q4_0, ..."
std::string gguf_file_type_names();

// The format of a matrix of which `wanted` is asked for, by the length of its rows: the same if
// they are whole blocks of it, otherwise Q5_0 for Q4_K, Q5_1 for Q5_K and Q8_0 for others. Nothing
// if they are no whole blocks of that either.
std::optional<QuantizedFormat> gguf_format_of_rows(QuantizedFormat wanted, std::int64_t columns);

// How llama.cpp's tools would write the tensor, whose name is that of the checkpoint: vectors,
// routers and scales in F32; the head, or the embedding that serves as one, in Q6_K where most
// matrices have fewer than 8 bits; formats as gguf_format_of_rows() says, rows of no whole blocks
// at all in F16.
TensorEncoding gguf_encoding(const SourceModel& model,
                             const NamedTensor& tensor,
                             const GgufFileType& type);

}  // namespace kakeya
