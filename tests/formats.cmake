kakeya_test(
  formats_test
  base/atomic_file_test.cc
  tensor/affine_format_test.cc
  formats/checkpoint_test.cc
  formats/dflash2_config_test.cc
  formats/drafter_config_test.cc
  tensor/dtype_test.cc
  formats/families_test.cc
  formats/gguf_checkpoint_test.cc
  formats/gguf_config_test.cc
  formats/gguf_names_test.cc
  formats/gguf_test.cc
  formats/gguf_write_test.cc
  tensor/integer_blocks_test.cc
  formats/json_document_test.cc
  tensor/calibrated_code_test.cc
  tensor/kv_format_test.cc
  formats/kv_statistics_test.cc
  formats/layer_heads_test.cc
  formats/model_config_test.cc
  formats/published_models_test.cc
  formats/model_tensors_test.cc
  formats/projection_config_test.cc
  tensor/quantized_format_test.cc
  tensor/random_weights_test.cc
  formats/safetensors_test.cc
  formats/snapshot_file_test.cc
  formats/snapshot_reader_test.cc
  formats/snapshot_writer_test.cc
  formats/tensor_request_test.cc)
# For files whose header is wrong and whose checksum is right.
target_link_libraries(formats_test PRIVATE PkgConfig::XXHASH)

kakeya_test(inspect_test apps/inspect_test.cc ${PROJECT_SOURCE_DIR}/apps/inspect_report.cc
            ${PROJECT_SOURCE_DIR}/apps/inspect_gguf.cc)
target_include_directories(inspect_test PRIVATE ${PROJECT_SOURCE_DIR}/apps)
