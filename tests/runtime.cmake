kakeya_test(sampler_test decode/sampler_test.cc)
kakeya_test(runtime_test model/test_model.cc runtime/demo_golden_test.cc runtime/session_test.cc)
# Replaces malloc, which sanitizers do too.
if(NOT KAKEYA_SANITIZE)
  kakeya_test(memory_test model/test_model.cc runtime/memory_test.cc)
endif()
