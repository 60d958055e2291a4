// Keyword arguments and dicts of Python, whose values are read by name and type.
#pragma once

#include <nanobind/nanobind.h>

#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kakeya::python {

namespace nb = nanobind;

// `name` begins the messages of all of these. They throw TypeError for a value of another type.
[[noreturn]] void refuse_type(const std::string& name, const char* expected, nb::handle got);
float number_of(const std::string& name, nb::handle value);
std::string text_of(const std::string& name, nb::handle value);
std::vector<std::string> texts_of(const std::string& name, nb::handle value);
// A value as JSON text. Throws what json.dumps() raises.
std::string json_of(const std::string& name, const nb::object& value);
// A path as the file system has it.
std::string path_of(const std::string& name, nb::handle value);

// Throws ValueError for an integer out of range.
template <typename T>
T integer_of(const std::string& name, nb::handle value) {
  if (PyIndex_Check(value.ptr()) == 0) refuse_type(name, "an integer", value);
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  T number{};
  if (nb::try_cast(index, number)) return number;
  const std::string text = nb::cast<std::string>(nb::str(index));
  throw nb::value_error((name + ": expected " + std::to_string(std::numeric_limits<T>::min()) +
                         " to " + std::to_string(std::numeric_limits<T>::max()) + ", got " + text)
                            .c_str());
}

// Reads the values of a dict; names that nobody reads are refused.
class Keywords {
 public:
  // `whose` begins messages.
  Keywords(const nb::dict& given, std::string whose) : given_(given), whose_(std::move(whose)) {}

  void read(const char* name, bool& field) {
    with(name, [&](nb::handle value) {
      if (!PyBool_Check(value.ptr())) refuse_type(place(name), "a bool", value);
      field = value.ptr() == Py_True;
    });
  }
  template <typename T>
  requires std::is_integral_v<T>
  void read(const char* name, T& field) {
    with(name, [&](nb::handle value) { field = integer_of<T>(place(name), value); });
  }
  void read(const char* name, float& field) {
    with(name, [&](nb::handle value) { field = number_of(place(name), value); });
  }
  void read(const char* name, std::string& field) {
    with(name, [&](nb::handle value) { field = text_of(place(name), value); });
  }
  void read_path(const char* name, std::string& field) {
    with(name, [&](nb::handle value) { field = path_of(place(name), value); });
  }
  // `words`: pairs of a word and its meaning.
  template <typename T, typename Words>
  void read(const char* name, T& field, const Words& words) {
    with(name, [&](nb::handle value) {
      const std::string given = text_of(place(name), value);
      std::string known;
      for (const auto& [word, meaning] : words) {
        if (given == word) {
          field = meaning;
          return;
        }
        known += (known.empty() ? "" : ", ") + std::string(word);
      }
      throw nb::value_error((place(name) + ": expected " + known + ", got " + given).c_str());
    });
  }
  template <typename T>
  void read(const char* name, T& field, std::initializer_list<std::pair<const char*, T>> words) {
    read<T, decltype(words)>(name, field, words);
  }
  // Calls `read_value` if the name was given.
  template <typename Read>
  void with(const char* name, const Read& read_value) {
    known_.insert(name);
    if (given_.contains(name)) read_value(nb::handle(given_[name]));
  }
  std::string place(const char* name) const { return whose_ + name; }

  // After all that there is to read.
  void refuse_unknown() const {
    for (const auto& [key, value] : given_) {
      const std::string name = text_of(whose_ + "name of an option", key);
      if (known_.contains(name)) continue;
      std::string known;
      for (const std::string& each : known_) known += (known.empty() ? "" : ", ") + each;
      throw nb::type_error((place(name.c_str()) + ": no such option; expected " + known).c_str());
    }
  }

 private:
  const nb::dict& given_;
  std::string whose_;
  std::set<std::string> known_;
};

}  // namespace kakeya::python
