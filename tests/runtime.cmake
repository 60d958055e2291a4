kakeya_test(sampler_test sampling/largest_logits_test.cc sampling/sampler_test.cc)
kakeya_test(step_plan_test runtime/step_plan_test.cc)
kakeya_test(workspace_test decode/workspace_test.cc)
kakeya_test(speculation_policy_test decode/length_policy_test.cc decode/ngram_source_test.cc)
kakeya_test(length_policy_grid_test decode/length_policy_grid_test.cc)
kakeya_test(memory_ladder_test runtime/memory_ladder_test.cc)
kakeya_test(weights_cache_test runtime/weights_cache_test.cc)
kakeya_test(runtime_test runtime/chat_context_test.cc runtime/demo_golden_test.cc runtime/device_failure_test.cc runtime/dflash2_engine_test.cc runtime/embedding_test.cc runtime/exact_rows_test.cc runtime/gguf_engine_test.cc runtime/session_test.cc runtime/fork_test.cc runtime/growth_test.cc
            runtime/constraint_test.cc runtime/emulated_sessions_test.cc runtime/session_logprobs_test.cc runtime/session_read_rows_test.cc runtime/prefix_files_test.cc runtime/prompt_cache_conversations_test.cc runtime/prompt_cache_files_test.cc runtime/prompt_cache_test.cc runtime/request_queue_test.cc runtime/scheduler_memory_test.cc runtime/scheduler_priority_test.cc runtime/scheduler_progress_test.cc runtime/scheduler_reading_test.cc runtime/scheduler_rules_test.cc
            runtime/scheduler_sharing_test.cc runtime/scheduler_test.cc runtime/session_passes_test.cc
            runtime/session_rules_test.cc
            runtime/session_snapshot_test.cc
            runtime/speculative_session_test.cc runtime/token_tree_test.cc runtime/timed_prefix_files_test.cc runtime/tools_in_text_test.cc)
# Replaces malloc, which sanitizers do too.
if(NOT KAKEYA_SANITIZE)
  kakeya_test(memory_test runtime/allocation_hook.cc runtime/memory_test.cc)
endif()

kakeya_test(cli_test cli/cli_test.cc cli/eval_niah_test.cc cli/eval_resume_test.cc cli/eval_runs_test.cc cli/eval_tasks_test.cc cli/convert_test.cc cli/flags_test.cc cli/foreign_flags_test.cc cli/memory_flags_test.cc cli/output_test.cc
            cli/bad_inputs_test.cc
            cli/calibrate_test.cc
            cli/bridge_test.cc
            cli/cuda_test.cc
            cli/doctor_test.cc
            cli/flag_names_test.cc
            cli/models_test.cc
            cli/serve_test.cc
            cli/session_file_test.cc
            cli/texts_test.cc
            cli/tools_test.cc
            ${PROJECT_SOURCE_DIR}/cli/flag_names.cc
            ${PROJECT_SOURCE_DIR}/cli/foreign_flags.cc
            ${PROJECT_SOURCE_DIR}/cli/usage.cc)
if(KAKEYA_WITH_LIBEDIT)
  target_sources(cli_test PRIVATE cli/line_editor_test.cc)
endif()
target_include_directories(cli_test PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(cli_test PRIVATE KAKEYA_BINARY="$<TARGET_FILE:kakeya_cli>"
                                            KAKEYA_VERSION="${PROJECT_VERSION}")
target_compile_definitions(cli_test PRIVATE KAKEYA_FAKE_LIBCUDA_FOLDER="$<TARGET_FILE_DIR:kakeya_fake_libcuda>")
if(KAKEYA_NVCC)
  math(EXPR major "${KAKEYA_CUDA_DRIVER} / 1000")
  target_compile_definitions(cli_test PRIVATE KAKEYA_HAS_DEVICE_CODE KAKEYA_CUDA_DRIVER="${major}")
endif()
add_dependencies(cli_test kakeya_cli kakeya_fake_libcuda)
kakeya_test(speculative_test decode/dflash_source_test.cc decode/passes_test.cc decode/replay_test.cc
            decode/shared_pass_test.cc
            decode/speculative_test.cc decode/stream_distribution_test.cc)

kakeya_test(speculation_eval_test eval/spec/speculation_eval_test.cc)
target_link_libraries(speculation_eval_test PRIVATE kakeya_eval)

kakeya_test(turns_test bench/turns_test.cc)
target_link_libraries(turns_test PRIVATE kakeya_bench)

kakeya_test(peers_test bench/peers_test.cc)
target_link_libraries(peers_test PRIVATE kakeya_peers)

kakeya_test(found_models_test cli/models/found_models_test.cc)
target_link_libraries(found_models_test PRIVATE kakeya_models)

kakeya_test(hub_choice_test cli/hub/hub_choice_test.cc)
target_link_libraries(hub_choice_test PRIVATE kakeya_hub)

kakeya_test(bench_test cli/bench_test.cc)
target_compile_definitions(bench_test PRIVATE KAKEYA_BINARY="$<TARGET_FILE:kakeya_cli>")
add_dependencies(bench_test kakeya_cli)

# Published models (tests/real_models.h); without them its tests are skipped by name.
kakeya_test(real_models_test runtime/real_models_test.cc)
