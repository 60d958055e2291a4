# KAKEYA_NVCC: NVIDIA's compiler, with which the kernels of src/backend/cuda are compiled for cards. What it makes
# becomes a part of the library; a test reads that no kernel needs memory for registers. Without it the backend `cuda`
# says why it is not available. Empty with sanitizers, unless ON.
# KAKEYA_CUDA_DRIVER: the least version of CUDA that a driver must know for it, as the driver counts.
set(KAKEYA_CUDA AUTO CACHE STRING "Compile the kernels for NVIDIA cards: ON, OFF, or AUTO where nvcc is found")
set_property(CACHE KAKEYA_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT KAKEYA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KAKEYA_CUDA must be AUTO, ON or OFF but is '${KAKEYA_CUDA}'")
endif()
set(KAKEYA_NVCC "")
if(KAKEYA_CUDA STREQUAL ON OR (KAKEYA_CUDA STREQUAL AUTO AND NOT KAKEYA_SANITIZE))
  find_program(KAKEYA_FOUND_NVCC nvcc PATHS /usr/local/cuda/bin)
  mark_as_advanced(KAKEYA_FOUND_NVCC)
  if(KAKEYA_FOUND_NVCC)
    set(KAKEYA_NVCC ${KAKEYA_FOUND_NVCC})
    execute_process(COMMAND ${KAKEYA_NVCC} --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
    if(NOT version MATCHES "release ([0-9]+)[.]")
      message(FATAL_ERROR "${KAKEYA_NVCC} --version: expected 'release NUMBER', got '${version}'")
    endif()
    # Drivers run what any compiler of their major version makes.
    math(EXPR KAKEYA_CUDA_DRIVER "${CMAKE_MATCH_1} * 1000")
  elseif(KAKEYA_CUDA STREQUAL ON)
    message(FATAL_ERROR "KAKEYA_CUDA is ON, but nvcc is not found: KAKEYA_FOUND_NVCC says where it is")
  endif()
endif()
