# The operators and their CPU kernels. A kernel's file is built for one instruction set and entered only after a check at run time.
set(pilotfish_ops_sources
  cpu/attention_portable.cpp
  cpu/embedding.cpp
  cpu/instruction_set.cpp
  cpu/linear.cpp
  cpu/linear_portable.cpp
  cpu/packed_weights.cpp
  cpu/paged_attention.cpp
  cpu/workers.cpp
  ops/embedding_op.cpp
  ops/kernel_io.cpp
  ops/linear_op.cpp
  ops/paged_attention_op.cpp
  ops/register.cpp)
set(pilotfish_ops_tests cuda_attention_limits_test kernels_test workers_test)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(pilotfish_avx2_kernels cpu/attention_avx2.cpp cpu/linear_avx2.cpp)
  set(pilotfish_avx512_kernels cpu/attention_avx512.cpp cpu/linear_avx512.cpp)
  list(APPEND pilotfish_ops_sources ${pilotfish_avx2_kernels} ${pilotfish_avx512_kernels})
  set(pilotfish_avx2_flags -mavx2 -mfma -mf16c)
  set(pilotfish_avx512_flags ${pilotfish_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
    -mprefer-vector-width=512 ${pilotfish_gcc_avx512_warnings})
  set_source_files_properties(${pilotfish_avx2_kernels} PROPERTIES COMPILE_OPTIONS "${pilotfish_avx2_flags}")
  set_source_files_properties(${pilotfish_avx512_kernels} PROPERTIES COMPILE_OPTIONS "${pilotfish_avx512_flags}")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  list(APPEND pilotfish_ops_sources cpu/attention_neon.cpp cpu/linear_neon.cpp cpu/linear_dotprod.cpp cpu/linear_i8mm.cpp)
  # GCC has the instructions from this version of the architecture on.
  set_source_files_properties(cpu/linear_dotprod.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
  set_source_files_properties(cpu/linear_i8mm.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm")
endif()
