kakeya_test(op_parity_test backend/op_parity_test.cc)
kakeya_test(row_invariance_test backend/row_invariance_test.cc)
