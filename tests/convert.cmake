kakeya_test(convert_test convert/block_encoder_test.cc)
