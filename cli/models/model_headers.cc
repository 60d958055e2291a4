#include "cli/models/model_headers.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/bounded_json.h"
#include "base/status.h"
#include "cli/models/place_listing.h"
#include "formats/drafter_config.h"
#include "formats/families.h"
#include "formats/gguf_config.h"
#include "formats/model_tensors.h"
#include "formats/printable.h"
#include "formats/safetensors.h"
#include "formats/tensor_request.h"

namespace kakeya::cli {
namespace {

constexpr std::string_view kDrafterFamily = "dflash";
constexpr std::string_view kIsDrafter = "is a drafter: for --draft";
constexpr std::size_t kMostConfigBytes = 16 << 20;
constexpr IntegerRange kFileTypes = {0, 1024};
constexpr IntegerRange kContexts = {0, std::int64_t{1} << 40};

// Names of general.file_type, by the numbers of llama.cpp's llama_ftype.
constexpr std::pair<int, std::string_view> kFileTypeNames[] = {
    {0, "F32"},      {1, "F16"},      {2, "Q4_0"},      {3, "Q4_1"},    {7, "Q8_0"},
    {8, "Q5_0"},     {9, "Q5_1"},     {10, "Q2_K"},     {11, "Q3_K_S"}, {12, "Q3_K_M"},
    {13, "Q3_K_L"},  {14, "Q4_K_S"},  {15, "Q4_K_M"},   {16, "Q5_K_S"}, {17, "Q5_K_M"},
    {18, "Q6_K"},    {19, "IQ2_XXS"}, {20, "IQ2_XS"},   {21, "Q2_K_S"}, {22, "IQ3_XS"},
    {23, "IQ3_XXS"}, {24, "IQ1_S"},   {25, "IQ4_NL"},   {26, "IQ3_S"},  {27, "IQ3_M"},
    {28, "IQ2_S"},   {29, "IQ2_M"},   {30, "IQ4_XS"},   {31, "IQ1_M"},  {32, "BF16"},
    {36, "TQ1_0"},   {37, "TQ2_0"},   {38, "MXFP4_MOE"}};

// Counts bytes by how they are stored.
class BytesByType {
 public:
  void add(std::string_view type, std::uint64_t bytes) { bytes_[type] += bytes; }
  // Empty if nothing was added.
  std::string most() const {
    const auto largest =
        std::ranges::max_element(bytes_, {}, [](const auto& each) { return each.second; });
    return largest == bytes_.end() ? "" : std::string(largest->first);
  }

 private:
  std::map<std::string_view, std::uint64_t> bytes_;
};

std::string type_of(const GgufCheckpoint& checkpoint) {
  const auto number = checkpoint.first().integer("general.file_type", kFileTypes);
  for (const auto& [type, name] : kFileTypeNames) {
    if (number && *number == type) return std::string(name);
  }
  BytesByType bytes;
  for (const GgufFile& file : checkpoint.files()) {
    for (const GgufTensor& tensor : file.tensors()) {
      bytes.add(gguf_encoding_name(tensor.encoding), tensor.data.size());
    }
  }
  return bytes.most();
}

std::string type_of(const Checkpoint& checkpoint) {
  BytesByType bytes;
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      bytes.add(dtype_name(tensor.dtype), tensor.bytes());
    }
  }
  return bytes.most();
}

// Why these tensors are not those of the configuration; empty if they are.
template <typename Files>
std::string problem_of_tensors(const Files& checkpoint, const ModelConfig& config) {
  const auto tensors = resolve_tensors(checkpoint, expected_tensors(config));
  return tensors ? "" : tensors.error().message();
}

void read_gguf(FoundModel& model) {
  std::error_code ignored;
  const auto size = std::filesystem::file_size(model.path, ignored);
  if (!ignored) model.bytes = size;
  const auto checkpoint = GgufCheckpoint::open(model.path);
  if (!checkpoint) {
    model.problem = checkpoint.error().message();
    return;
  }
  model.bytes = 0;
  for (const GgufFile& file : checkpoint->files()) model.bytes += file.file().bytes().size();
  model.type = type_of(*checkpoint);
  const GgufFile& first = checkpoint->first();
  model.family = printable(first.text_or("general.architecture", "").value_or(""));
  model.context = first.integer_or(model.family + ".context_length", 0, kContexts).value_or(0);
  if (model.family == kDrafterFamily) {
    model.problem = kIsDrafter;
    return;
  }
  const auto config = read_gguf_model_config(*checkpoint);
  if (!config) {
    model.problem = config.error().message();
    return;
  }
  model.context = config->max_position_embeddings;
  model.problem = problem_of_tensors(*checkpoint, *config);
  if (model.problem.empty() && first.find_value("tokenizer.ggml.tokens") == nullptr) {
    model.problem = "has no tokenizer";
  }
}

// Reads what config.json says of a family, supported or not, and how many bits MLX's format has.
void read_raw_config(FoundModel& model) {
  const auto text = read_small_file(model.path + "/config.json", kMostConfigBytes);
  const auto json =
      text ? read_json(*text) : Result<nlohmann::ordered_json>(Unexpected(text.error()));
  if (!json || !json->is_object()) return;
  if (json->contains("model_type") && (*json)["model_type"].is_string()) {
    model.family = printable((*json)["model_type"].get<std::string>());
  }
  const auto quantization = json->find("quantization");
  if (quantization == json->end() || !quantization->is_object()) return;
  const auto bits = quantization->find("bits");
  if (bits != quantization->end() && bits->is_number_integer()) {
    model.type = fmt::format("{}bit", bits->get<std::int64_t>());
  }
}

void read_folder(FoundModel& model) {
  read_raw_config(model);
  const auto checkpoint = Checkpoint::open(model.path);
  if (checkpoint) {
    model.bytes = checkpoint->total_bytes();
    if (model.type.empty()) model.type = type_of(*checkpoint);
  }
  if (is_drafter_folder(model.path)) {
    model.family = kDrafterFamily;
    model.problem = kIsDrafter;
    return;
  }
  const auto config = load_model_config(model.path);
  if (!config) {
    model.problem = config.error().message();
    return;
  }
  model.family = family_of(config->architecture).name;
  model.context = config->max_position_embeddings;
  model.problem =
      checkpoint ? problem_of_tensors(*checkpoint, *config) : checkpoint.error().message();
  std::error_code ignored;
  if (model.problem.empty() && !std::filesystem::exists(model.path + "/tokenizer.json", ignored)) {
    model.problem = "has no tokenizer.json";
  }
}

}  // namespace

void read_headers(FoundModel& model) {
  if (!model.opens) return;
  std::error_code ignored;
  if (std::filesystem::is_directory(model.path, ignored)) {
    read_folder(model);
  } else {
    read_gguf(model);
  }
}

}  // namespace kakeya::cli
