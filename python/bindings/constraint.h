// Constraints that are written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>

#include "bindings/errors.h"
#include "kakeya/constraint.h"

namespace kakeya::python {

// A kakeya.Constraint as the engine calls it, from within passes that run without the GIL. What a
// method raises ends the generation; whoever runs that calls rethrow() behind it. Made with
// the GIL.
class PythonConstraint final : public Constraint {
 public:
  // Takes the constraint of Python for one generation. Throws Raised with kFailedPrecondition while
  // another one has it.
  explicit PythonConstraint(nb::object methods);
  ~PythonConstraint() override;

  bool fill_mask(std::span<std::uint32_t> mask) override;
  bool advance(TokenId id) override;
  void roll_back(std::int64_t count) override;

  // Lets another generation have it; this one calls it no more. With the GIL.
  void release();
  // Throws what a method raised.
  void rethrow() { callbacks_.rethrow(); }

 private:
  template <typename Use>
  bool called(const Use& call);

  nb::object methods_;
  bool is_taken_ = true;
  Callbacks callbacks_;
};

}  // namespace kakeya::python
