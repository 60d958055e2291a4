kakeya_test(calibrate_test calibrate/activation_sums_test.cc
            calibrate/importance_test.cc)
