kakeya_test(integer_products_test backend/integer_products_test.cc)
kakeya_test(op_parity_test backend/op_parity_test.cc)
kakeya_test(row_invariance_test backend/row_invariance_test.cc)
kakeya_test(packed_layout_test backend/packed_layout_test.cc
            backend/finite_weights_test.cc backend/weight_hash_test.cc)
kakeya_test(restored_attention_test backend/restored_attention_test.cc)
kakeya_test(golden_ops_test backend/golden_ops_test.cc)
kakeya_test(backend_allocation_test backend/allocation_test.cc)
kakeya_test(guarded_backend_test backend/guarded_backend_test.cc)
kakeya_test(cuda_emulator_test backend/cuda_emulator_test.cc)
kakeya_test(mlx_backend_test backend/mlx_backend_test.cc)
kakeya_test(thread_pool_test backend/control_group_test.cc backend/thread_pool_test.cc)
# Named so that the log of `make test` shows which units ran natively and which by a twin.
kakeya_test(instruction_sets_test twin/instruction_sets_test.cc twin/instructions_test.cc)
# Of the kernels as they are compiled for cards, which builds of single targets leave out.
if(KAKEYA_NVCC AND NOT KAKEYA_SANITIZE)
  add_test(NAME cuda_device_code COMMAND ${PROJECT_SOURCE_DIR}/tools/device_code
                                         ${PROJECT_BINARY_DIR}/src/backend/cuda/ptxas.log)
  set_tests_properties(cuda_device_code PROPERTIES LABELS cuda_device_code)
endif()
