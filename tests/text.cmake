kakeya_test(tokenizer_test text/tokenizer_golden_test.cc text/tokenizer_test.cc)
