// The published configurations that tests read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "formats/scratch_files.h"

namespace kakeya {

inline std::string config_path(const std::string& name) {
  return std::string(KAKEYA_TEST_DATA) + "/configs/" + name;
}

inline nlohmann::json published(const std::string& name) {
  return nlohmann::json::parse(read_file(config_path(name) + "/config.json"));
}

}  // namespace kakeya
