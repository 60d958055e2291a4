#include "wire/http/unserved_field.h"

#include <string>

namespace kakeya::wire {
namespace {

bool asks_for_something(const Json& value, const UnservedField& field) {
  if (value.is_boolean()) return value.get<bool>() != field.usual;
  if (value.is_number()) return !(field.neutral && value.get<double>() == *field.neutral);
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

}  // namespace

void refuse_unserved(JsonReader& reader,
                     const Json& object,
                     std::span<const UnservedField> fields) {
  for (const UnservedField& field : fields) {
    const Json* value = reader.find(object, field.name);
    if (value == nullptr || !asks_for_something(*value, field)) continue;
    return reader.refuse(field.name, field.expected, shown(*value));
  }
}

}  // namespace kakeya::wire
