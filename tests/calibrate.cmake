kakeya_test(calibrate_test model/test_model.cc calibrate/activation_sums_test.cc
            calibrate/importance_test.cc)
