kakeya_test(convert_test tensor/block_encoder_test.cc convert/gguf_model_test.cc
            convert/converted_families_test.cc convert/gguf_source_test.cc convert/mlx_checkpoint_test.cc
            convert/tokenizer_check_test.cc convert/vocabulary_families_test.cc
            convert/target_folder_test.cc convert/weighted_encoder_test.cc)
target_link_libraries(convert_test PRIVATE OpenSSL::Crypto)
kakeya_test(calibrate_test convert/activation_sums_test.cc
            convert/importance_test.cc)
