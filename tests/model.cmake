kakeya_test(model_test model/bytes_read_test.cc model/dflash/dflash_test.cc model/dflash/dflash2_test.cc model/golden_networks_test.cc kv/kv_cache_test.cc model/ways_to_keep_rows_test.cc model/restore_test.cc model/tensor_sources_test.cc model/model_notes_test.cc model/heads_test.cc model/wrong_variants_test.cc)
kakeya_test(quantized_checkpoint_test model/quantized_checkpoint_test.cc)
kakeya_test(gguf_model_test model/models_from_gguf_test.cc)
