kakeya_test(tokenizer_test text/tokenizer_gguf_test.cc text/tokenizer_golden_test.cc
            text/tokenizer_messages_test.cc text/tokenizer_test.cc)
kakeya_test(chat_template_test text/chat_template_cost_test.cc text/chat_template_test.cc
            text/plain_texts_test.cc)
kakeya_test(stop_strings_test text/stop_strings_test.cc text/text_stream_test.cc)
