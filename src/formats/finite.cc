// Says where a tensor has NaN or infinity, declared in formats/safetensors.h.
#include "tensor/finite.h"

#include "base/status.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace kakeya {

Status check_finite(const TensorView& tensor) {
  if (const auto* groups = std::get_if<AffineGroups>(&tensor.quantization)) {
    TensorView part = {.shape = tensor.shape, .dtype = groups->dtype};
    part.shape.back() /= groups->format.group_size;
    for (const bool scales : {true, false}) {
      part.data = scales ? groups->scales : groups->biases;
      part.name = tensor.name + (scales ? " (scales)" : " (biases)");
      KAKEYA_TRY(check_finite(part));
    }
    return {};
  }
  const auto index = find_non_finite(tensor);
  if (!index) return {};
  if (const auto* format = std::get_if<QuantizedFormat>(&tensor.quantization)) {
    return data_loss("tensor {}: block {} of {} ({}) is not finite (NaN or infinity)",
                     printable(tensor.name), *index, shape_string(tensor.shape),
                     quantized_format_name(*format));
  }
  return data_loss("tensor {}: element {} of {} is not finite (NaN or infinity)",
                   printable(tensor.name), *index, shape_string(tensor.shape));
}

}  // namespace kakeya
