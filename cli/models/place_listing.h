// Listing of what a place holds, as the program that keeps it lays it out. Names and small files
// are read, nothing of models. Nothing in a place is trusted: sizes are bounded, and no link is
// followed that leaves what the program's own links stay in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/models/found_models.h"
#include "kakeya/status.h"

namespace kakeya::cli {

// Adds the models of a place; none if it is not there.
void list_place(const ModelPlace& place, std::vector<FoundModel>& found);

// One for each kind.
void list_hugging_face(const std::string& folder, std::vector<FoundModel>& found);
void list_llama_cpp(const std::string& folder, std::vector<FoundModel>& found);
void list_lm_studio(const std::string& folder, std::vector<FoundModel>& found);
void list_ollama(const std::string& folder, std::vector<FoundModel>& found);

// Names in a folder, in their order; none of one that cannot be read, and no more than a bound.
std::vector<std::string> names_in(const std::string& folder);
// Follows links.
bool is_folder(const std::string& path);
// True if a path lies in a folder when links are followed; a link to nothing lies where it is.
bool lies_in(const std::string& path, const std::string& folder);
// The text of a file of at most `most_bytes`. Errors: kNotFound; kInvalidArgument for a larger one
// and for what is no file.
Result<std::string> read_small_file(const std::string& path, std::size_t most_bytes);

// Why a file may not be opened: a link of it leaves `root`, or it is no file; empty: it may.
std::string problem_of_file(const std::string& path, const std::string& root);
// True for a GGUF file that is a model or its first part: not for other parts, nor for the vision
// half that stands beside a model (mmproj).
bool is_model_file(const std::string& file_name);
// The name of a GGUF file without its ending, nor the number of the part that it is.
std::string_view stem_of_parts(std::string_view file_name);
// "x-00002-of-00003.gguf": 3; 1 for a file that is no part.
int count_of_parts(std::string_view file_name);
// The first file and the other parts of a split one, as far as they are among the files.
std::vector<std::string> parts_of(const std::string& first, const std::vector<std::string>& files);

struct StoredFolder {
  PlaceKind place = PlaceKind::kHuggingFace;
  std::string name;
  std::string path;
  std::string root;  // links may lead to what is in here
};
// Adds each GGUF file of one model's folder, and the folder itself where it holds a configuration
// and no GGUF file, or weights besides.
void list_model_folder(const StoredFolder& stored, std::vector<FoundModel>& found);

}  // namespace kakeya::cli
