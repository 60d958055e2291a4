kakeya_test(train_test train/code_choice_test.cc train/reduced_rank_test.cc train/second_moments_test.cc
            train/train_projection_test.cc train/training_cli_test.cc train/training_text_test.cc)
# Its own copies of products of matrices may be the ones that are linked. A precompiled header serves
# programs of one optimisation only.
target_compile_options(train_test PRIVATE -O2)
set_target_properties(train_test PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
target_link_libraries(train_test PRIVATE kakeya_train kakeya_eval)
target_compile_definitions(train_test PRIVATE KAKEYA_BINARY="$<TARGET_FILE:kakeya_train_cli>")
add_dependencies(train_test kakeya_train_cli)
if(KAKEYA_WITH_MLX)
  kakeya_test(train_mlx_test train/drafter_network_test.cc train/projection_losses_test.cc
              train/refine_projection_test.cc train/train_drafter_test.cc)
  # MLX's headers do not compile without optimisation.
  target_compile_options(train_mlx_test PRIVATE SHELL:-O1)
  set_target_properties(train_mlx_test PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  target_link_libraries(train_mlx_test PRIVATE kakeya_train_mlx)
  target_compile_definitions(train_mlx_test PRIVATE KAKEYA_BINARY="$<TARGET_FILE:kakeya_train_cli>")
  add_dependencies(train_mlx_test kakeya_train_cli)
endif()
