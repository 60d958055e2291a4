// Answers one prompt with the model of a folder: generate MODEL_FOLDER PROMPT
#include <kakeya/engine.h>

#include <cstdio>

namespace {

kakeya::Status generate(const char* folder, const char* prompt) {
  auto engine = kakeya::Engine::open({.model_dir = folder});
  if (!engine) return tl::unexpected(engine.error());
  const auto tokenizer = (*engine)->tokenizer();
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  const kakeya::ChatMessage message = {.role = "user", .content = prompt};
  const auto ids = (*engine)->encode_chat({&message, 1});
  if (!ids) return tl::unexpected(ids.error());

  auto session = (*engine)->create_session();
  if (!session) return tl::unexpected(session.error());
  if (auto status = (*session)->append(*ids); !status) return status;
  const auto result = (*session)->generate({.max_tokens = 64});
  if (!result) return tl::unexpected(result.error());
  std::printf("%s\n", (*tokenizer)->decode(result->ids).c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: generate MODEL_FOLDER PROMPT\n");
    return 2;
  }
  if (const auto status = generate(argv[1], argv[2]); !status) {
    std::fprintf(stderr, "generate: %s\n", status.error().message().c_str());
    return 1;
  }
  return 0;
}
