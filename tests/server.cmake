kakeya_test(server_test wire/anthropic/messages_test.cc wire/fields/known_fields_test.cc service/answer_calls_test.cc service/answer_plan_test.cc service/answer_request_test.cc service/answer_splitter_test.cc service/line_limits_test.cc
            service/driver_test.cc service/replica_name_test.cc service/sessions/catalogue_test.cc service/sessions/sessions_test.cc service/thought_markers_test.cc service/tool_parser_test.cc service/watchdog_test.cc
            wire/http/access_test.cc wire/http/clients_test.cc wire/http/history_test.cc wire/http/http_rules_test.cc wire/http/http_server_test.cc wire/http/keys_test.cc wire/http/models_over_http_test.cc
            wire/http/prefix_cache_test.cc wire/http/recorded_requests_test.cc wire/http/requests_over_http_test.cc wire/http/request_log_test.cc wire/http/thoughts_over_http_test.cc wire/http/tool_calls_over_http_test.cc wire/http/tool_loops_over_http_test.cc wire/http/trusted_proxies_test.cc
            wire/ollama/answers_test.cc wire/openai/completion_read_test.cc wire/openai/format_test.cc wire/openai/infill_test.cc wire/openai/responses_over_http_test.cc wire/openai/responses_read_test.cc
            wire/openai/input_items_test.cc wire/openai/responses_store_test.cc wire/openai/responses_write_test.cc wire/openai/text_routes_test.cc wire/openai/tools_read_test.cc wire/sessions/damage_test.cc wire/sessions/routes_test.cc)
target_link_libraries(server_test PRIVATE kakeya_wire Boost::headers OpenSSL::SSL)

kakeya_test(grammar_test service/grammar/call_rules_test.cc service/grammar/call_walks_test.cc service/grammar/compile_queue_test.cc service/grammar/grammar_constraint_test.cc service/grammar/mask_trial_test.cc service/grammar/schema_corpus_test.cc service/grammar/schema_suite_test.cc
            service/grammar/grammar_rules_test.cc service/grammar/object_members_test.cc service/grammar/schema_texts_test.cc)
target_link_libraries(grammar_test PRIVATE kakeya_service)

if(KAKEYA_WITH_XGRAMMAR)
  # Random texts of forms, which tests/clients/form_walks_test.py asks for.
  add_executable(form_walks service/grammar/form_walks.cc)
  target_link_libraries(form_walks PRIVATE kakeya_service kakeya_compile_options)
endif()

if(KAKEYA_WITH_GRPC)
  kakeya_test(grpc_test wire/grpc/grpc_server_test.cc)
  target_link_libraries(grpc_test PRIVATE kakeya_grpc Boost::headers OpenSSL::SSL)
  # gRPC compiles with -pthread, and the tests' precompiled header was made without.
  set_target_properties(grpc_test PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
endif()
