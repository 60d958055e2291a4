#include "service/grammar/call_arguments.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

// The objects among the values of a schema, as schemas whose values they are together.
class ObjectsOf {
 public:
  explicit ObjectsOf(const SchemaDocument& document) : document_(document) {}

  std::vector<Schema> all() {
    add(document_.root);
    return std::move(objects_);
  }

 private:
  void add(const Schema& schema) {
    switch (schema.kind) {
      case SchemaKind::kAny:
        objects_.push_back({.kind = SchemaKind::kObject, .rest = {Schema{}}});
        return;
      case SchemaKind::kObject:
        objects_.push_back(schema);
        return;
      case SchemaKind::kAnyOf:
        for (const Schema& part : schema.parts) add(part);
        return;
      case SchemaKind::kReference:
        // A definition that is there already need not be there again.
        if (seen_.insert(schema.reference).second) add(document_.definitions[schema.reference]);
        return;
      case SchemaKind::kValues:
        return add_values(schema);
      case SchemaKind::kNull:
      case SchemaKind::kBoolean:
      case SchemaKind::kInteger:
      case SchemaKind::kNumber:
      case SchemaKind::kString:
      case SchemaKind::kArray:
        return;
    }
  }

  void add_values(const Schema& schema) {
    Schema objects = {.kind = SchemaKind::kValues};
    for (const ordered_json& value : schema.values) {
      if (value.is_object()) objects.values.push_back(value);
    }
    if (!objects.values.empty()) objects_.push_back(std::move(objects));
  }

  const SchemaDocument& document_;
  std::set<std::size_t> seen_ = {};
  std::vector<Schema> objects_ = {};
};

// True of a schema whose type alone says that no object meets it.
bool excludes_objects(const ordered_json& schema) {
  if (!schema.is_object()) return schema != true;
  const auto type = schema.find("type");
  if (type == schema.end()) return false;
  const ordered_json types = type->is_array() ? *type : ordered_json::array({*type});
  return std::ranges::find(types, "object") == types.end();
}

Unexpected never_an_object(const ordered_json& parameters) {
  constexpr std::size_t kMost = 60;
  const std::string shown = parameters.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return error(StatusCode::kInvalidArgument, "expected parameters that are an object, got {}{}",
               shown.substr(0, kMost), shown.size() > kMost ? "..." : "");
}

}  // namespace

Result<SchemaDocument> read_arguments(const ordered_json& parameters,
                                      const SchemaOptions& options,
                                      Effort& effort) {
  if (excludes_objects(parameters)) return never_an_object(parameters);
  auto document = read_schema(parameters.dump(), options, effort);
  if (!document) return error(StatusCode::kUnimplemented, "{}", document.error().message());
  std::vector<Schema> objects = ObjectsOf(*document).all();
  if (objects.empty()) return never_an_object(parameters);
  if (objects.size() == 1) {
    document->root = std::move(objects.front());
  } else {
    document->root = {.kind = SchemaKind::kAnyOf, .parts = std::move(objects)};
  }
  return document;
}

}  // namespace kakeya::service
