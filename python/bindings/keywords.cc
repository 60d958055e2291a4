#include "bindings/keywords.h"

#include <nanobind/stl/string.h>

namespace kakeya::python {

void refuse_type(const std::string& name, const char* expected, nb::handle got) {
  const std::string type = nb::cast<std::string>(got.type().attr("__name__"));
  throw nb::type_error((name + ": expected " + expected + ", got " + type).c_str());
}

float number_of(const std::string& name, nb::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() == nullptr) return static_cast<float>(number);
  PyErr_Clear();
  refuse_type(name, "a number", value);
}

std::string text_of(const std::string& name, nb::handle value) {
  if (PyUnicode_Check(value.ptr()) == 0) refuse_type(name, "str", value);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<std::size_t>(size)};
}

std::string json_of(const std::string& name, const nb::object& value) {
  const nb::object dumps = nb::module_::import_("json").attr("dumps");
  return text_of(name, dumps(value, nb::arg("ensure_ascii") = false));
}

std::string path_of(const std::string& name, nb::handle value) {
  if (PyUnicode_Check(value.ptr()) == 0 && !nb::hasattr(value, "__fspath__")) {
    refuse_type(name, "a path", value);
  }
  const nb::bytes bytes(nb::module_::import_("os").attr("fsencode")(value));
  return {bytes.c_str(), bytes.size()};
}

std::vector<std::string> texts_of(const std::string& name, nb::handle value) {
  if (PySequence_Check(value.ptr()) == 0 || PyUnicode_Check(value.ptr()) != 0) {
    refuse_type(name, "a sequence of str", value);
  }
  std::vector<std::string> texts;
  for (const nb::handle text : nb::borrow<nb::sequence>(value))
    texts.push_back(text_of(name, text));
  return texts;
}

}  // namespace kakeya::python
