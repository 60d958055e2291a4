// The outcome of a generation, as Python sees it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kakeya/session.h"

namespace kakeya::python {

namespace nb = nanobind;

template <typename T>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <typename T>
using Matrix = nb::ndarray<nb::numpy, T, nb::ndim<2>>;

// Deletes the numbers, made by new[], when the last array of NumPy's that has them goes.
template <typename T>
nb::capsule owner_of(T* numbers) {
  return {numbers, [](void* memory) noexcept { delete[] static_cast<T*>(memory); }};
}

// A copy of the numbers in an array of NumPy's, which owns it.
template <typename T>
Array<T> array_of(std::span<const T> numbers) {
  T* copy = new T[numbers.size()];
  std::copy(numbers.begin(), numbers.end(), copy);
  return Array<T>(copy, {numbers.size()}, owner_of(copy));
}

struct Generation {
  GenerateResult tokens;
  std::optional<std::string> text;  // nothing where the model has no tokenizer
  bool stopped_by_text = false;
  bool with_logprobs = false;  // it was asked for them
};

void bind_generation(nb::module_& module);

}  // namespace kakeya::python
