kakeya_test(integer_products_test backend/few_experts_test.cc backend/integer_products_test.cc)
kakeya_test(op_parity_test backend/attention_parity_test.cc backend/choice_test.cc backend/op_parity_test.cc)
kakeya_test(row_invariance_test backend/row_invariance_test.cc)
kakeya_test(packed_layout_test backend/packed_layout_test.cc
            backend/finite_weights_test.cc tensor/weight_hash_test.cc)
kakeya_test(coded_attention_test backend/coded_attention_test.cc)
kakeya_test(restored_attention_test backend/restored_attention_test.cc)
kakeya_test(golden_ops_test backend/golden_ops_test.cc)
kakeya_test(backend_allocation_test backend/allocation_test.cc)
kakeya_test(guarded_backend_test backend/emulated/guarded_backend_test.cc)
kakeya_test(cuda_emulator_test backend/cuda/cuda_emulator_test.cc backend/emulated/early_start_test.cc
            backend/emulated/launch_writes_test.cc)
kakeya_test(tensor_attention_test backend/tensor_attention_test.cc)
# Built as the driver library is named, in a folder of its own.
add_library(kakeya_fake_libcuda SHARED backend/cuda/fake_libcuda.cc backend/cuda/fake_libcuda_graphs.cc
            backend/cuda/fake_libcuda_memory.cc)
target_include_directories(kakeya_fake_libcuda PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(kakeya_fake_libcuda PRIVATE kakeya_emulated kakeya kakeya_compile_options fmt::fmt)
set_target_properties(
  kakeya_fake_libcuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                                 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_libcuda)
if(NOT APPLE)
  # What it has of the library is its own.
  target_link_options(kakeya_fake_libcuda PRIVATE -Wl,--exclude-libs,ALL)
endif()
kakeya_test(cuda_driver_test backend/cuda/cuda_backend_test.cc backend/cuda/cuda_card_test.cc backend/cuda/cuda_driver_test.cc backend/cuda/cuda_bias_test.cc backend/cuda/cuda_fold_test.cc backend/cuda/cuda_reads_test.cc
            backend/cuda/cuda_fuse_test.cc backend/cuda/cuda_outputs_test.cc backend/cuda/cuda_router_test.cc backend/cuda/cuda_row_steps_test.cc
            backend/cuda/cuda_repeat_test.cc backend/cuda/cuda_sequences_test.cc)
target_compile_definitions(cuda_driver_test PRIVATE KAKEYA_FAKE_LIBCUDA="$<TARGET_FILE:kakeya_fake_libcuda>")
add_dependencies(cuda_driver_test kakeya_fake_libcuda)
if(KAKEYA_NVCC)
  cmake_path(GET KAKEYA_NVCC PARENT_PATH folder)
  find_path(KAKEYA_CUDA_HEADERS cuda.h HINTS ${folder}/../include NO_DEFAULT_PATH)
  mark_as_advanced(KAKEYA_CUDA_HEADERS)
  if(KAKEYA_CUDA_HEADERS)
    target_sources(cuda_driver_test PRIVATE backend/cuda/libcuda_header_test.cc)
    set_source_files_properties(backend/cuda/libcuda_header_test.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_include_directories(cuda_driver_test SYSTEM PRIVATE ${KAKEYA_CUDA_HEADERS})
  endif()
endif()
kakeya_test(mlx_backend_test backend/mlx/mlx_backend_test.cc)
if(KAKEYA_WITH_MLX)
  kakeya_test(mlx_kernels_test backend/mlx/mlx_kernels_test.cc)
  # As train_mlx_test.
  target_compile_options(mlx_kernels_test PRIVATE SHELL:-O1)
  set_target_properties(mlx_kernels_test PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  target_link_libraries(mlx_kernels_test PRIVATE MLX::mlx)
endif()
kakeya_test(thread_pool_test base/bounded_json_test.cc base/control_group_test.cc base/thread_pool_test.cc base/timed_thread_test.cc)
# Named so that the log of `make test` shows which units ran natively and which by a twin.
kakeya_test(instruction_sets_test twin/instruction_sets_test.cc twin/instructions_test.cc)
# Of the kernels as they are compiled for cards.
if(KAKEYA_NVCC)
  add_test(NAME cuda_device_code COMMAND ${PROJECT_SOURCE_DIR}/tools/device_code
                                         ${PROJECT_BINARY_DIR}/src/backend/cuda/ptxas.log)
  set_tests_properties(cuda_device_code PROPERTIES LABELS cuda_device_code)
endif()
