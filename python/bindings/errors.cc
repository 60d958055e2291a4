#include "bindings/errors.h"

namespace kakeya::python {

void register_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Raised& raised) {
      const std::string& message = raised.error.message();
      const nb::object exception = nb::module_::import_("kakeya._errors")
                                       .attr("error_of")(static_cast<int>(raised.error.code()),
                                                         nb::bytes(message.data(), message.size()));
      PyErr_SetObject(exception.type().ptr(), exception.ptr());
    }
  });
}

}  // namespace kakeya::python
