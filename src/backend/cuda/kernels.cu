// The kernels under their names, for nvcc.
#include "backend/cuda/device/attention_of_many.h"
#include "backend/cuda/device/early_route.h"
#include "backend/cuda/device/few_experts.h"
#include "backend/cuda/device/head_steps.h"
#include "backend/cuda/device/host_exchange.h"
#include "backend/cuda/device/integer_tiles.h"
#include "backend/cuda/device/kernel_list.h"
#include "backend/cuda/device/joined_attention.h"
#include "backend/cuda/device/largest.h"
#include "backend/cuda/device/many_pairs.h"
#include "backend/cuda/device/plain_outputs.h"
#include "backend/cuda/device/residual_steps.h"
#include "backend/cuda/device/restored_attention.h"
#include "backend/cuda/device/row_steps.h"
#include "backend/cuda/device/rows.h"
#include "backend/cuda/device/store.h"
#include "backend/cuda/device/tensor_attention.h"
#include "backend/cuda/device/tensor_products.h"

#define KAKEYA_LATER kakeya::cuda::dev::wait_for_previous(), kakeya::cuda::dev::let_next_start()
#define KAKEYA_KERNEL(name, params)                             \
  extern "C" __global__ void kakeya_##name(                     \
      const __grid_constant__ kakeya::cuda::device::params p) { \
    KAKEYA_LATER;                                               \
    kakeya::cuda::device::name(p);                              \
  }
// Two blocks of 256 threads have room on a multiprocessor: one loads while the other one adds up.
#define KAKEYA_PAIRED_KERNEL(name, params)                                    \
  extern "C" __global__ void __launch_bounds__(256, 2)                        \
      kakeya_##name(const __grid_constant__ kakeya::cuda::device::params p) { \
    KAKEYA_LATER;                                                             \
    kakeya::cuda::device::name(p);                                            \
  }
#define KAKEYA_WIDE_KERNEL(name, params)                                      \
  extern "C" __global__ void __launch_bounds__(1024)                          \
      kakeya_##name(const __grid_constant__ kakeya::cuda::device::params p) { \
    kakeya::cuda::device::name(p);                                            \
  }
#define KAKEYA_EARLY_KERNEL(name, params)                                     \
  extern "C" __global__ void __launch_bounds__(256, 2)                        \
      kakeya_##name(const __grid_constant__ kakeya::cuda::device::params p) { \
    kakeya::cuda::device::name(p);                                            \
  }
#define KAKEYA_LIGHT_KERNEL(name, params)                                     \
  extern "C" __global__ void __launch_bounds__(256, 4)                        \
      kakeya_##name(const __grid_constant__ kakeya::cuda::device::params p) { \
    kakeya::cuda::device::name(p);                                            \
  }
KAKEYA_CUDA_KERNELS(KAKEYA_KERNEL,
                    KAKEYA_PAIRED_KERNEL,
                    KAKEYA_WIDE_KERNEL,
                    KAKEYA_EARLY_KERNEL,
                    KAKEYA_LIGHT_KERNEL)
