#include "bindings/constraint.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/generation.h"
#include "bindings/passes.h"

namespace kakeya::python {
namespace {

// Those of Python that generations use; with the GIL.
std::set<PyObject*>& taken() {
  static auto* const taken = new std::set<PyObject*>;
  return *taken;
}

bool truth_of(const std::string& method, const nb::object& answer) {
  // A method without a return would allow everything.
  if (answer.is_none()) throw nb::type_error((method + ": expected a bool, got None").c_str());
  const int truth = PyObject_IsTrue(answer.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

}  // namespace

PythonConstraint::PythonConstraint(nb::object methods) : methods_(std::move(methods)) {
  if (taken().insert(methods_.ptr()).second) return;
  throw Raised{
      Error(StatusCode::kFailedPrecondition,
            "constraint: expected one that no other generation uses, which has not ended")};
}

void PythonConstraint::release() {
  if (std::exchange(is_taken_, false)) taken().erase(methods_.ptr());
}

PythonConstraint::~PythonConstraint() {
  const nb::gil_scoped_acquire locked;
  release();
  methods_.reset();
}

template <typename Use>
bool PythonConstraint::called(const Use& call) {
  bool answer = false;
  const bool returned = callbacks_.run([&] {
    const WithinConstraint within;
    answer = call();
    return true;
  });
  if (!returned) throw std::runtime_error("a constraint of Python raised an exception");
  return answer;
}

bool PythonConstraint::fill_mask(std::span<std::uint32_t> mask) {
  return called([&] {
    // Its own memory, which may be kept beyond the call.
    const Array<std::uint32_t> words = array_of(std::span<const std::uint32_t>(mask));
    const bool restricts = truth_of("fill_mask", methods_.attr("fill_mask")(words));
    std::copy_n(words.data(), mask.size(), mask.data());
    return restricts;
  });
}

bool PythonConstraint::advance(TokenId id) {
  return called([&] { return truth_of("advance", methods_.attr("advance")(id)); });
}

void PythonConstraint::roll_back(std::int64_t count) {
  called([&] {
    methods_.attr("roll_back")(count);
    return true;
  });
}

}  // namespace kakeya::python
