# The operators and their CPU kernels. A kernel's file is built for one instruction set and entered only after a check at run time.
set(pilotfish_ops_sources
  cpu/attention_portable.cpp
  cpu/embedding.cpp
  cpu/instruction_set.cpp
  cpu/int4_scales.cpp
  cpu/int4_scales_portable.cpp
  cpu/linear.cpp
  cpu/linear_portable.cpp
  cpu/norm_activation.cpp
  cpu/packed_weights.cpp
  cpu/paged_attention.cpp
  cpu/row_steps.cpp
  cpu/row_steps_portable.cpp
  cpu/workers.cpp
  ops/embedding_op.cpp
  ops/gather_rows_op.cpp
  ops/join_op.cpp
  ops/kernel_io.cpp
  ops/linear_op.cpp
  ops/norm_activation_op.cpp
  ops/paged_attention_op.cpp
  ops/register.cpp
  ops/row_inputs.cpp
  ops/row_steps_inputs.cpp
  ops/row_steps_op.cpp
  ops/rows_part_op.cpp)
set(pilotfish_ops_tests cuda_attention_limits_test kernels_test row_program_test workers_test)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(pilotfish_avx2_kernels cpu/attention_avx2.cpp cpu/int4_scales_avx2.cpp cpu/linear_avx2.cpp cpu/row_steps_avx2.cpp)
  set(pilotfish_avx512_kernels cpu/attention_avx512.cpp cpu/int4_scales_avx512.cpp cpu/linear_avx512.cpp
      cpu/row_steps_avx512.cpp)
  list(APPEND pilotfish_ops_sources ${pilotfish_avx2_kernels} ${pilotfish_avx512_kernels})
  set(pilotfish_avx2_flags -mavx2 -mfma -mf16c)
  set(pilotfish_avx512_flags ${pilotfish_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
    -mprefer-vector-width=512 ${pilotfish_gcc_avx512_warnings})
  set_source_files_properties(${pilotfish_avx2_kernels} PROPERTIES COMPILE_OPTIONS "${pilotfish_avx2_flags}")
  set_source_files_properties(${pilotfish_avx512_kernels} PROPERTIES COMPILE_OPTIONS "${pilotfish_avx512_flags}")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  list(APPEND pilotfish_ops_sources cpu/attention_neon.cpp cpu/int4_scales_neon.cpp cpu/linear_neon.cpp cpu/linear_dotprod.cpp
       cpu/linear_i8mm.cpp cpu/row_steps_neon.cpp)
  # GCC has the instructions from this version of the architecture on; zig's clang takes processors alone.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(pilotfish_arm_processor -march=armv8.2-a)
  else()
    set(pilotfish_arm_processor -mcpu=generic)
  endif()
  set_source_files_properties(cpu/linear_dotprod.cpp PROPERTIES COMPILE_OPTIONS "${pilotfish_arm_processor}+dotprod")
  set_source_files_properties(cpu/linear_i8mm.cpp PROPERTIES COMPILE_OPTIONS "${pilotfish_arm_processor}+dotprod+i8mm")
endif()
