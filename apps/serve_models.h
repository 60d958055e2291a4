// The models of `kakeya serve`, where there are several: which they are, and their parts of the
// memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "kakeya/status.h"
#include "service/model_pool.h"
#include "service/service_options.h"

namespace kakeya::cli {

// Flags that name models.
struct ModelNames {
  std::vector<std::string> models;  // paths or names; several: all are served
  std::string file;                 // --models; empty: none
  std::vector<std::string> aliases;
  double idle_seconds = 0.0;  // --model-ttl

  // True if models are loaded when they are asked for.
  bool are_several() const { return models.size() > 1 || !file.empty() || idle_seconds > 0.0; }
};

void add_model_names(CLI::App& command, ModelNames& names);

// The name that a model is asked for by, or the last folder's or file's: what people call it.
std::string name_of_model(const std::string& asked, const std::string& model);

// A pool, and what keeps the folder of its sessions if nobody has named one: sessions outlive the
// time that their model is loaded, and end with the server.
struct SeveralModels {
  std::shared_ptr<const void> sessions = {};
  std::unique_ptr<service::ModelPool> pool = {};
};

// The models that `names` names, within the memory of `base`, whose other flags hold for each that
// has none of its own. Each has a part of the memory: what its table says, else an equal part, or
// what it and one session of its context take, if that is more. Throws CLI::ParseError for a file
// that says what cannot be. Errors: kInvalidArgument for a name in `options`; as engine_options(),
// Engine::estimate() and ModelPool::create().
Result<SeveralModels> open_models(const ModelNames& names,
                                  const ModelFlags& base,
                                  service::ServiceOptions options);

// Takes over the memory that the settings of `config` have by now; without one it stays. The log
// says what became of it. Errors: kInvalidArgument for a file that cannot be read, or no number of
// bytes; as ModelPool::set_memory(). Then it stays as it was.
Status reread_memory(service::ModelPool& models, const std::string& config);

}  // namespace kakeya::cli
