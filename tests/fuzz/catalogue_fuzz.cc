// Any bytes as a catalogue of sessions: it is refused in one line, or what can be read of it can be
// read, changed and ended without a crash.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/check.h"
#include "service/sessions/catalogue.h"

namespace {

using kakeya::service::Catalogue;

// One for the process; in memory where the system has such a folder.
const std::string& folder() {
  // Never destroyed, for the process's last act is to delete the folder.
  static const std::string& made = *[] {
    const char* const root = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
    std::string name = std::string(root) + "/catalogue-fuzz-XXXXXX";
    KAKEYA_CHECK(::mkdtemp(name.data()) != nullptr);
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return new std::string(name);
  }();
  return made;
}

void use(Catalogue& catalogue, const std::string& owner) {
  const auto rows = catalogue.list(owner, 20);
  if (!rows) return;
  for (const auto& row : *rows) {
    static_cast<void>(catalogue.tokens(owner, row.id));
    static_cast<void>(catalogue.set_tokens(owner, row.id, row.tokens / 2, std::vector{1, 2, 3}));
    static_cast<void>(
        catalogue.add_fork({.id = row.id + "-fork", .owner = owner, .parent = row.id}, 1));
    static_cast<void>(catalogue.remove(owner, row.id));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const auto& file : std::filesystem::directory_iterator(folder())) {
    std::filesystem::remove(file.path());
  }
  std::ofstream(folder() + "/sessions.sqlite", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const auto catalogue = Catalogue::open(folder(), "model", 100);
  if (!catalogue) return 0;
  static_cast<void>((*catalogue)->count());
  static_cast<void>((*catalogue)->unused_since(1e10, 10));
  use(**catalogue, "ann");
  static_cast<void>((*catalogue)->add({.id = "new", .owner = "ann"}));
  return 0;
}
