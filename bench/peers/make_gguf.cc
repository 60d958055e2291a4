// make_gguf: GGUF files for comparing engines on the same weights; see README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <optional>

#include "base/status.h"
#include "formats/named_shapes.h"
#include "gguf_model.h"

namespace kakeya::peers {
namespace {

struct Flags {
  std::string out;
  std::string shape;
  std::int64_t layers = 0;
  std::string type = "q4_0";
  std::string embedding_type;  // empty: as type
  std::uint64_t seed = 1;
};

// "q4_0", "BF16", ...
Result<GgufEncoding> parse_type(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  if (const auto format = parse_quantized_format(name)) return *format;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  return invalid_argument("--type: expected one such as q4_0, q8_0, q4_k or bf16, got {}", name);
}

Status run(const Flags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, named_shape(flags.shape, flags.layers));
  RandomModelOptions options{.seed = flags.seed};
  KAKEYA_ASSIGN_OR_RETURN(options.matrices, parse_type(flags.type));
  KAKEYA_ASSIGN_OR_RETURN(
      options.embedding,
      parse_type(flags.embedding_type.empty() ? flags.type : flags.embedding_type));
  return write_random_model(flags.out, config, options);
}

int main_with(int argc, char** argv) {
  CLI::App app("Writes GGUF files for comparing engines: random weights of a shape");
  Flags flags;
  app.add_option("out", flags.out, "The file to write")->required();
  CLI::Option* shape = app.add_option("--shape", flags.shape, "Random weights of this shape");
  app.add_option("--layers", flags.layers, "Only the first layers of the shape")->needs(shape);
  app.add_option("--type", flags.type, "Type of random matrices")->capture_default_str();
  app.add_option("--embedding-type", flags.embedding_type, "Type of the embedding and head");
  app.add_option("--seed", flags.seed, "Of the random weights")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (flags.shape.empty()) flags.shape = "gemma4-26b-a4b";
  if (const Status status = run(flags); !status) {
    fmt::print(stderr, "make_gguf: {}\n", status.error().message());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace kakeya::peers

int main(int argc, char** argv) {
  return kakeya::peers::main_with(argc, argv);
}
