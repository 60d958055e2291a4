kakeya_test(tokenizer_test text/tokenizer_families_test.cc text/tokenizer_gguf_test.cc text/tokenizer_golden_test.cc
            text/tokenizer_messages_test.cc text/tokenizer_real_test.cc text/tokenizer_scores_test.cc
            text/tokenizer_test.cc)
kakeya_test(chat_template_test text/chat_template_cost_test.cc text/chat_template_test.cc
            text/plain_texts_test.cc)
# It measures what texts cost, and templates of headers that it shares with the library may be its own.
target_compile_options(chat_template_test PRIVATE SHELL:-O1)
set_target_properties(chat_template_test PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
kakeya_test(stop_strings_test text/stop_strings_test.cc text/text_stream_test.cc)
