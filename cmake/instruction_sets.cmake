# Compiler options of the CPU backend's units (src/backend/cpu/units), which are compiled for machines
# that the rest of the program must not assume, and of their twins in tests/twin.
set(KAKEYA_OPTIONS_AVX2 -mavx2 -mfma -mf16c)
set(KAKEYA_OPTIONS_AVX2_VNNI ${KAKEYA_OPTIONS_AVX2} -mavxvnni)
# g++ 12 takes the undefined operands inside its own intrinsics for uninitialised variables.
set(KAKEYA_OPTIONS_AVX512 ${KAKEYA_OPTIONS_AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
                          -Wno-uninitialized -Wno-maybe-uninitialized)
set(KAKEYA_OPTIONS_AVX512_BF16 ${KAKEYA_OPTIONS_AVX512} -mavx512bf16 -mavx512vnni)
set(KAKEYA_OPTIONS_AMX_BF16 ${KAKEYA_OPTIONS_AVX512_BF16} -mamx-tile -mamx-bf16 -mamx-int8)

# kakeya_compile_for(target instruction_set source...): options of that unit for sources of the target;
# of PORTABLE, which any machine runs, none.
function(kakeya_compile_for target instruction_set)
  set(options ${KAKEYA_OPTIONS_${instruction_set}})
  if(KAKEYA_SANITIZE AND NOT KAKEYA_SANITIZE_KERNELS)
    list(APPEND options -fno-sanitize=all -O1 -Wno-unused-command-line-argument)
  elseif(KAKEYA_SANITIZE MATCHES "undefined")
    # These checks of pointers double the time to compile; the address sanitizer finds what leaves a buffer.
    list(APPEND options -fno-sanitize=null,alignment,pointer-overflow,object-size)
  endif()
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()
