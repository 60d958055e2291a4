// Models in the caches of other programs, laid out as they do, and damaged.
#include "cli/models/found_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "cli/models/model_cache.h"

namespace kakeya::test {
namespace {

using cli::FoundModel;
using cli::ModelPlace;
using cli::PlaceKind;
using cli::Purpose;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

const std::string kLlamaNetwork = std::string(KAKEYA_TEST_DATA) + "/networks/llama";

class FoundModels : public testing::Test {
 protected:
  std::vector<FoundModel> find(PlaceKind kind) const {
    const ModelPlace place = {kind, folder_.root()};
    return cli::find_models({&place, 1});
  }
  // The one model that there is.
  FoundModel only(PlaceKind kind) const {
    const auto found = find(kind);
    EXPECT_EQ(found.size(), 1U);
    return found.empty() ? FoundModel() : found.front();
  }
  Result<cli::ModelChoice> resolve(PlaceKind kind,
                                   const std::string& name,
                                   Purpose purpose = Purpose::kRun) const {
    const ModelPlace place = {kind, folder_.root()};
    return cli::resolve_model(name, {&place, 1}, purpose);
  }
  // The path's end that a name stands for, or the error.
  std::string file_of(PlaceKind kind, const std::string& name) const {
    const auto choice = resolve(kind, name);
    return choice ? std::filesystem::path(choice->path).filename().string()
                  : choice.error().message();
  }
  std::string path(const std::string& below) const { return folder_.path(below); }

  // Weights in Ollama's blobs, and a manifest that names them.
  void add_ollama(const std::string& manifest, char digit, const std::string& kind = "model") {
    const std::string hex(64, digit);
    write_model_file(path("blobs/sha256-" + hex), 15);
    write_text(path("manifests/" + manifest),
               R"({"schemaVersion":2,"layers":[{"mediaType":"application/vnd.ollama.image.)" +
                   kind + R"(","digest":"sha256:)" + hex + R"(","size":1}]})");
  }

  ScratchFolder folder_;
};

TEST(ModelPlaces, AreWhereEachProgramLooks) {
  std::map<std::string, std::string> variables = {{"HOME", "/h"}};
  const auto folders = [&] {
    std::vector<std::string> names;
    for (const ModelPlace& place :
         cli::model_places([&](const std::string& name) { return variables[name]; })) {
      names.push_back(place.folder);
    }
    return names;
  };
#ifndef __APPLE__
  EXPECT_THAT(folders(),
              ElementsAre("/h/.cache/huggingface/hub", "/h/.cache/llama.cpp", "/h/.lmstudio/models",
                          "/h/.cache/lm-studio/models", "/h/.ollama/models"));
#endif
  variables["XDG_CACHE_HOME"] = "/x";
  EXPECT_EQ(folders()[0], "/x/huggingface/hub");
  variables["HF_HOME"] = "/hf";
  EXPECT_EQ(folders()[0], "/hf/hub");
  variables["HF_HUB_CACHE"] = "/hub";
  variables["LLAMA_CACHE"] = "/llama";
  variables["OLLAMA_MODELS"] = "/ollama";
  EXPECT_THAT(folders(), ElementsAre("/hub", "/llama", "/h/.lmstudio/models",
                                     "/h/.cache/lm-studio/models", "/ollama"));
  variables = {};
  EXPECT_THAT(folders(), ElementsAre());
}

TEST_F(FoundModels, AreFoldersOfHuggingFacesCache) {
  const HubModel model(folder_.root(), "models--owner--name");
  model.add_files_of(kLlamaNetwork);
  write_text(model.add_link("tokenizer.json"), "{}");
  const FoundModel found = only(PlaceKind::kHuggingFace);
  EXPECT_EQ(found.name, "owner/name");
  EXPECT_EQ(found.path, model.snapshot());
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.family, "llama");
  EXPECT_EQ(found.type, "BF16");
  EXPECT_GT(found.bytes, 1000U);
  EXPECT_GT(found.context, 0);
  EXPECT_EQ(resolve(PlaceKind::kHuggingFace, "owner/name").value().path, model.snapshot());
}

TEST_F(FoundModels, OfHuggingFaceThatAreDamagedSayHow) {
  const auto problem = [&] {
    const FoundModel found = only(PlaceKind::kHuggingFace);
    EXPECT_EQ(found.name, "owner/name");
    const auto choice = resolve(PlaceKind::kHuggingFace, "owner/name");
    EXPECT_EQ(choice.has_value(), found.problem.empty());
    if (!choice) {
      EXPECT_THAT(choice.error().message(), EndsWith(found.problem));
    }
    return found.problem;
  };
  const HubModel model(folder_.root(), "models--owner--name");
  EXPECT_THAT(problem(), HasSubstr("neither a config.json nor a GGUF file"));
  model.add_files_of(kLlamaNetwork);
  EXPECT_EQ(problem(), "has no tokenizer.json");
  std::filesystem::remove(model.snapshot() + "/model.safetensors");
  EXPECT_THAT(problem(), HasSubstr("model.safetensors"));
  // A download that has begun can be looked at.
  EXPECT_TRUE(resolve(PlaceKind::kHuggingFace, "owner/name", Purpose::kLookAt).has_value());
  write_text(model.root() + "/refs/main", "../../elsewhere");
  EXPECT_THAT(problem(), HasSubstr("refs/main is damaged: expected a commit"));
  EXPECT_FALSE(resolve(PlaceKind::kHuggingFace, "owner/name", Purpose::kLookAt).has_value());
  write_text(model.root() + "/refs/main", std::string(300, '0'));
  EXPECT_THAT(problem(), HasSubstr("refs/main is damaged"));
  write_text(model.root() + "/refs/main", "ffff");
  EXPECT_EQ(problem(), "the snapshot that refs/main names is missing");
  // Without it, the one snapshot is meant.
  std::filesystem::remove(model.root() + "/refs/main");
  EXPECT_THAT(problem(), HasSubstr("model.safetensors"));
  std::filesystem::create_directories(model.root() + "/snapshots/4567");
  EXPECT_EQ(problem(), "has no refs/main, and 2 snapshots");
}

TEST_F(FoundModels, LinksThatLeaveTheModelAreNotFollowed) {
  const ScratchFolder elsewhere;
  write_model_file(elsewhere.path("secret.gguf"), 1);
  const HubModel model(folder_.root(), "models--owner--name");
  std::filesystem::create_symlink(elsewhere.path("secret.gguf"), model.snapshot() + "/a.gguf");
  EXPECT_THAT(only(PlaceKind::kHuggingFace).problem,
              HasSubstr("a.gguf is a link that leaves the model's folder"));
  EXPECT_FALSE(resolve(PlaceKind::kHuggingFace, "owner/name", Purpose::kLookAt).has_value());
  std::filesystem::remove(model.snapshot() + "/a.gguf");
  // Another model's blobs are out of bounds, too, and so is one file of a folder.
  const HubModel other(folder_.root(), "models--owner--other");
  model.add_files_of(kLlamaNetwork);
  write_text(other.root() + "/blobs/b", "{}");
  std::filesystem::create_symlink(other.root() + "/blobs/b",
                                  model.snapshot() + "/tokenizer_config.json");
  EXPECT_THAT(file_of(PlaceKind::kHuggingFace, "owner/name"),
              HasSubstr("tokenizer_config.json is a link that leaves"));
  std::filesystem::remove_all(model.root());
  std::filesystem::create_directory_symlink(elsewhere.root(), model.root());
  EXPECT_THAT(file_of(PlaceKind::kHuggingFace, "owner/name"),
              HasSubstr("is a link that leaves its place"));
}

TEST_F(FoundModels, AreFilesOfLlamasCache) {
  write_model_file(path("own_er_na_me_sub_x-Q4_K_M.gguf"), 15);
  write_text(path("manifest=own_er=na_me=latest.json"),
             R"({"ggufFile":{"rfilename":"sub/x-Q4_K_M.gguf"}})");
  write_model_file(path("alone.gguf"), 1);
  const auto found = find(PlaceKind::kLlamaCpp);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "alone");
  EXPECT_EQ(found[0].type, "F16");
  EXPECT_EQ(found[1].name, "own_er/na_me");
  EXPECT_EQ(found[1].file, "sub_x-Q4_K_M.gguf");
  EXPECT_EQ(found[1].problem, "");
  EXPECT_EQ(file_of(PlaceKind::kLlamaCpp, "own_er/na_me"), "own_er_na_me_sub_x-Q4_K_M.gguf");
}

TEST_F(FoundModels, OfLlamasCacheWithDamagedManifestsSayHow) {
  const auto problem = [&](std::string_view manifest) {
    write_text(path("manifest=owner=name=latest.json"), manifest);
    return only(PlaceKind::kLlamaCpp).problem;
  };
  EXPECT_THAT(problem("{"), HasSubstr("its manifest is damaged"));
  EXPECT_THAT(problem("[]"), HasSubstr("expected the text ggufFile.rfilename"));
  EXPECT_THAT(problem(R"({"ggufFile":{"rfilename":7}})"), HasSubstr("ggufFile.rfilename"));
  EXPECT_THAT(problem(std::string(2 << 20, ' ')), HasSubstr("at most 1048576 bytes"));
  EXPECT_THAT(problem(R"({"ggufFile":{"rfilename":"../../x.gguf"}})"), HasSubstr("is missing"));
  // The file beside it runs all the same.
  write_model_file(path("owner_name_x.gguf"), 1);
  EXPECT_EQ(file_of(PlaceKind::kLlamaCpp, "owner/name"), "owner_name_x.gguf");
}

TEST_F(FoundModels, AreFilesAndFoldersOfLmStudio) {
  write_model_file(path("owner/files/x-Q8_0.gguf"), 7);
  write_text(path("owner/files/mmproj-x.gguf"), "no model");
  std::filesystem::create_directories(path("owner/folder"));
  std::filesystem::copy(kLlamaNetwork, path("owner/folder"));
  write_text(path("owner/folder/tokenizer.json"), "{}");
  const auto found = find(PlaceKind::kLmStudio);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "owner/files");
  EXPECT_EQ(found[0].type, "Q8_0");
  EXPECT_EQ(found[1].name, "owner/folder");
  EXPECT_EQ(found[1].problem, "");
}

TEST_F(FoundModels, AreNamesOfOllama) {
  add_ollama("registry.ollama.ai/library/llama/1b", '1');
  add_ollama("registry.ollama.ai/library/llama/latest", '2');
  add_ollama("registry.ollama.ai/somebody/own/latest", '3');
  add_ollama("hf.co/owner/name/Q4_K_M", '4');
  std::vector<std::string> names;
  for (const FoundModel& model : find(PlaceKind::kOllama)) {
    EXPECT_EQ(model.problem, "") << model.name;
    names.push_back(model.name);
  }
  EXPECT_THAT(names, ElementsAre("hf.co/owner/name:Q4_K_M", "llama:1b", "llama:latest",
                                 "somebody/own:latest"));
  const auto digit = [&](const std::string& name) {
    return file_of(PlaceKind::kOllama, name).back();
  };
  EXPECT_EQ(digit("llama:1b"), '1');
  EXPECT_EQ(digit("llama"), '2');
  EXPECT_EQ(digit("somebody/own"), '3');
  EXPECT_EQ(digit("hf.co/owner/name"), '4');
  EXPECT_THAT(file_of(PlaceKind::kOllama, "llama:7b"), HasSubstr("nor a model of this name"));
}

TEST_F(FoundModels, OfOllamaWithDamagedManifestsSayHow) {
  add_ollama("registry.ollama.ai/library/llama/latest", '1');
  const std::string manifest = path("manifests/registry.ollama.ai/library/llama/latest");
  const auto problem = [&](std::string_view text) {
    write_text(manifest, text);
    const FoundModel found = only(PlaceKind::kOllama);
    EXPECT_EQ(found.name, "llama:latest");
    return found.problem;
  };
  EXPECT_THAT(problem("{"), HasSubstr("its manifest cannot be used"));
  EXPECT_THAT(problem("{}"), HasSubstr("expected layers"));
  EXPECT_THAT(problem(R"({"layers":[1]})"), HasSubstr("expected objects"));
  EXPECT_THAT(problem(R"({"layers":[]})"), HasSubstr("expected the digest of a layer of weights"));
  const std::string layer = R"({"layers":[{"mediaType":"application/vnd.ollama.image.model",)";
  EXPECT_THAT(problem(layer + R"("digest":"sha256:../../x"}]})"), HasSubstr("expected the digest"));
  EXPECT_THAT(problem(layer + R"("digest":"sha256:)" + std::string(64, 'f') + R"("}]})"),
              HasSubstr("missing"));
  const std::string adapter = R"({"layers":[{"mediaType":"application/vnd.ollama.image.adapter",)";
  EXPECT_THAT(problem(adapter + R"("digest":"sha256:1"}]})"), HasSubstr("got an adapter"));
}

TEST_F(FoundModels, OfSeveralTheLargestThatRunsIsMeant) {
  write_model_file(path("owner/name/x-Q4_K_M.gguf"), 15);
  write_model_file(path("owner/name/x-Q8_0.gguf"), 7, 5000);
  write_model_file(path("owner/name/x-F16.gguf"), 1, 9000);
  const std::string largest = path("owner/name/x-F16.gguf");
  std::filesystem::resize_file(largest, std::filesystem::file_size(largest) - 100);  // cut off
  const auto choice = resolve(PlaceKind::kLmStudio, "owner/name");
  ASSERT_TRUE(choice.has_value()) << choice.error().message();
  EXPECT_THAT(choice->path, EndsWith("/x-Q8_0.gguf"));
  EXPECT_THAT(choice->note, HasSubstr("x-Q8_0.gguf (Q8_0, "));
  EXPECT_THAT(choice->note, EndsWith("LM Studio); there are also owner/name:Q4_K_M"));

  for (const char* name : {"owner/name:Q4_K_M", "owner/name:q4_k_m", "owner/name:x-Q4_K_M.gguf"}) {
    EXPECT_EQ(file_of(PlaceKind::kLmStudio, name), "x-Q4_K_M.gguf");
    EXPECT_EQ(resolve(PlaceKind::kLmStudio, name).value().note, "");
  }
  EXPECT_THAT(file_of(PlaceKind::kLmStudio, "owner/name:F16"), HasSubstr("cannot run: "));
  EXPECT_THAT(file_of(PlaceKind::kLmStudio, "owner/name:Q2_K"),
              HasSubstr("got none such; there is owner/name:"));
  // A type that only the file's name says.
  write_model_file(path("owner/name/x-UD-Q4_K_XL.gguf"), 14);
  EXPECT_EQ(file_of(PlaceKind::kLmStudio, "owner/name:UD-Q4_K_XL"), "x-UD-Q4_K_XL.gguf");
}

TEST_F(FoundModels, ThatAreSplitAreOne) {
  write_model_file(path("owner/name/x-00001-of-00002.gguf"), 1);
  write_text(path("owner/name/x-00002-of-00002.gguf"), "");
  EXPECT_EQ(only(PlaceKind::kLmStudio).file, "x-00001-of-00002.gguf");
  const ScratchFolder elsewhere;
  write_text(elsewhere.path("x"), "");
  std::filesystem::remove(path("owner/name/x-00002-of-00002.gguf"));
  std::filesystem::create_symlink(elsewhere.root() + "/x",
                                  path("owner/name/x-00002-of-00002.gguf"));
  EXPECT_THAT(only(PlaceKind::kLmStudio).problem, HasSubstr("00002-of-00002.gguf is a link that"));
}

TEST_F(FoundModels, NamesAreNoPaths) {
  for (const char* name : {"owner/name", "owner/name:Q4_K_M", "llama3.2:1b", "llama3.2",
                           "hf.co/owner/name", "owner/name:x.gguf"}) {
    EXPECT_TRUE(cli::is_model_name(name)) << name;
  }
  for (const char* path : {"", "./owner/name", "/owner/name", "../x", "x.gguf", "owner/x.GGUF",
                           "x/", "a b", "owner//name", "~/x", "a\nb"}) {
    EXPECT_FALSE(cli::is_model_name(path)) << path;
  }
}

TEST_F(FoundModels, NotFoundSaysWhereAndWhatBringsIt) {
  const auto choice = resolve(PlaceKind::kLmStudio, "owner/name:Q8_0");
  ASSERT_FALSE(choice.has_value());
  EXPECT_EQ(choice.error().code(), StatusCode::kNotFound);
  EXPECT_EQ(choice.error().message(),
            "owner/name:Q8_0: expected a model's folder or GGUF file, got no such folder or file, "
            "nor a model of this name in " +
                folder_.root() + "; `kakeya pull owner/name:Q8_0` fetches Hugging Face's");
}

}  // namespace
}  // namespace kakeya::test
