# libpilotfish_cuda: the CUDA kernels, a second library that is loaded only where a GPU is asked for. Configure with
# -DPILOTFISH_CUDA=ON; -DPILOTFISH_CUDA_ARCHITECTURES picks from 80, 86, 87 (Orin), 89, 90, 110 (Thor) and 120.
set(PILOTFISH_CUDA_ARCHITECTURES "80;86;87;89;90;120" CACHE STRING "Compute capabilities that the CUDA kernels are built for")
foreach(architecture IN LISTS PILOTFISH_CUDA_ARCHITECTURES)
  if(NOT architecture MATCHES "^(80|86|87|89|90|110|120)$")
    message(FATAL_ERROR "PILOTFISH_CUDA_ARCHITECTURES: ${architecture} is not one of 80, 86, 87, 89, 90, 110, 120")
  endif()
endforeach()
# Device code for each, and the newest as PTX for what comes after it.
list(SORT PILOTFISH_CUDA_ARCHITECTURES COMPARE NATURAL)
list(TRANSFORM PILOTFISH_CUDA_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE pilotfish_cuda_targets)
list(TRANSFORM pilotfish_cuda_targets REPLACE "^90-real$" "90a-real")  # with wgmma
list(GET PILOTFISH_CUDA_ARCHITECTURES -1 pilotfish_cuda_newest)
set(CMAKE_CUDA_ARCHITECTURES ${pilotfish_cuda_targets} ${pilotfish_cuda_newest}-virtual)
enable_language(CUDA)

add_library(pilotfish_cuda SHARED
  cuda/add_noise.cu
  cuda/activation_map.cu
  cuda/attention_plain.cu
  cuda/attention_prefill.cu
  cuda/attention_prepare.cu
  cuda/attention_split.cu
  cuda/choose_likeliest.cu
  cuda/embedding.cu
  cuda/find_likeliest.cu
  cuda/gather_rows.cu
  cuda/grow_tree.cu
  cuda/half_linear.cu
  cuda/half_repack.cu
  cuda/join_columns.cu
  cuda/lowbit_linear.cu
  cuda/lowbit_plan.cu
  cuda/lowbit_repack.cu
  cuda/lowbit_resident.cu
  cuda/norm_activation.cu
  cuda/paged_attention.cu
  cuda/prefill_linear.cu
  cuda/prefill_operands.cu
  cuda/read_bandwidth.cu
  cuda/rms_norm.cu
  cuda/round_start.cu
  cuda/row_steps.cu
  cuda/operators/bandwidth.cpp
  cuda/operators/cuda_device.cpp
  cuda/operators/embedding_op.cpp
  cuda/operators/gather_rows_op.cpp
  cuda/operators/join_op.cpp
  cuda/operators/linear_op.cpp
  cuda/operators/model_context.cpp
  cuda/operators/node_io.cpp
  cuda/operators/norm_activation_op.cpp
  cuda/operators/paged_attention_op.cpp
  cuda/operators/row_steps_op.cpp
  cuda/operators/rows_part_op.cpp
  cuda/operators/scratch.cpp
  cuda/operators/streamed_weights.cpp
  cuda/operators/weight_store.cpp
  ops/kernel_io.cpp
  ops/row_inputs.cpp
  ops/row_steps_inputs.cpp
  src/base/row_program.cpp)
target_include_directories(pilotfish_cuda PUBLIC cuda cuda/operators include src ops cpu
                           ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
list(JOIN PILOTFISH_CUDA_ARCHITECTURES ", " pilotfish_cuda_names)
target_compile_definitions(pilotfish_cuda PRIVATE PILOTFISH_CUDA_TARGETS="${pilotfish_cuda_names}")
set_target_properties(pilotfish_cuda PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON
                      CUDA_VISIBILITY_PRESET hidden)
target_compile_options(pilotfish_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xcompiler=-Wall,-Wextra,-Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-ffunction-sections>)
# kernel_io.cpp has more than is used here.
target_link_options(pilotfish_cuda PRIVATE -Wl,--gc-sections -Wl,-z,defs "-Wl,--version-script=${pilotfish_exports}")
set_target_properties(pilotfish_cuda PROPERTIES LINK_DEPENDS "${pilotfish_exports}")
if(PILOTFISH_PYTHON)
  install(TARGETS pilotfish_cuda LIBRARY DESTINATION pilotfish/bindings)
endif()

# Programs of tests/gpu, which need a GPU to run. The kernels are compiled once more into them: the library hides its
# launchers.
if(PILOTFISH_GPU_TESTS)
  set(pilotfish_gpu_folder "${CMAKE_CURRENT_SOURCE_DIR}/../tests/gpu")
  get_target_property(pilotfish_cuda_sources pilotfish_cuda SOURCES)
  list(FILTER pilotfish_cuda_sources INCLUDE REGEX "\\.cu$")
  add_library(pilotfish_kernels STATIC ${pilotfish_cuda_sources} src/base/row_program.cpp)
  target_include_directories(pilotfish_kernels PUBLIC cuda src)
  foreach(program attention_test attention_bench row_kernels_test row_steps_test round_kernels_test draft_tree_test lowbit_linear_test lowbit_linear_bench layer_bench
                  prefill_linear_test prefill_linear_bench)
    add_executable(${program} "${pilotfish_gpu_folder}/${program}.cu")
    target_link_libraries(${program} PRIVATE pilotfish_kernels Threads::Threads)
  endforeach()
  foreach(target pilotfish_kernels attention_test attention_bench row_kernels_test row_steps_test round_kernels_test draft_tree_test lowbit_linear_test lowbit_linear_bench
                 layer_bench prefill_linear_test prefill_linear_bench)
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  endforeach()
  target_include_directories(row_steps_test PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/../tests/native")
  # The host's noise, to compare with.
  target_sources(round_kernels_test PRIVATE src/sampling/shared_noise.cpp src/sampling/philox_lanes.cpp
                 src/base/x86_features.cpp)
  target_compile_options(round_kernels_test PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
  foreach(program engine_check batch_check)
    add_executable(${program} "${pilotfish_gpu_folder}/${program}.cpp")
    target_link_libraries(${program} PRIVATE pilotfish)
  endforeach()
  add_executable(device_test "${pilotfish_gpu_folder}/device_test.cpp")
  target_include_directories(device_test PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/../tests/native"
                             ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_link_libraries(device_test PRIVATE pilotfish_objects pilotfish_kernels)
  add_dependencies(device_test pilotfish_cuda)
endif()
