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

// How llama.cpp's tools would write the tensor, whose name is that of the checkpoint: vectors,
// routers and scales in F32; the head, or the embedding that serves as one, in Q6_K where most
// matrices have fewer than 8 bits; K formats where rows are whole blocks of them, otherwise Q4_K
// and Q5_K become Q5_0 and Q5_1, and Q6_K Q8_0; rows of no whole blocks at all F16.
TensorEncoding gguf_encoding(const SourceModel& model,
                             const NamedTensor& tensor,
                             const GgufFileType& type);

}  // namespace kakeya
