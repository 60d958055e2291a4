// Names of backends that programs add to those of the library.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"

namespace kakeya {

using CreateBackend = Result<std::unique_ptr<Backend>> (*)(const BackendOptions& options);

// Makes `name`, which must be of static storage, the name of a further backend, for
// create_backend() and backends(). Not thread-safe: call it before any backend is created.
void add_backend(std::string_view name, CreateBackend create);

}  // namespace kakeya
