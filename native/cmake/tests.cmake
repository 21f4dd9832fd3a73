# One executable a native test, named after its source in tests/native; `ctest` runs them. They need no model.
set(pilotfish_test_folder "${CMAKE_CURRENT_SOURCE_DIR}/../tests/native")

foreach(test IN LISTS pilotfish_engine_tests pilotfish_ops_tests)
  add_executable(${test} "${pilotfish_test_folder}/${test}.cpp")
  target_link_libraries(${test} PRIVATE pilotfish_objects)
  # GCC 12 takes the copies in its own std::string for overlapping ones.
  target_compile_options(${test} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  add_test(NAME ${test} COMMAND ${test})
endforeach()

target_include_directories(cuda_attention_limits_test PRIVATE cuda)

# Of the CUDA library, over a runtime that the test has itself.
add_executable(streamed_weights_test "${pilotfish_test_folder}/streamed_weights_test.cpp"
               cuda/operators/streamed_weights.cpp)
target_include_directories(streamed_weights_test BEFORE PRIVATE "${pilotfish_test_folder}/fake_cuda")
target_include_directories(streamed_weights_test PRIVATE cuda)
target_link_libraries(streamed_weights_test PRIVATE pilotfish_objects)
add_test(NAME streamed_weights_test COMMAND streamed_weights_test)

# What ort_test opens instead of ONNX Runtime, and cuda_library_test instead of a driver and of CUDA kernels.
foreach(fake IN ITEMS fake_ort fake_cuda_driver)
  add_library(${fake} MODULE "${pilotfish_test_folder}/${fake}.c")
endforeach()
foreach(fake IN ITEMS fake_cuda_library other_cuda_library)
  add_library(${fake} MODULE "${pilotfish_test_folder}/fake_cuda_library.cpp")
  target_include_directories(${fake} PRIVATE src include)
endforeach()
target_compile_definitions(fake_cuda_library PRIVATE FAKE_INTERFACE=pilotfish::kCudaInterfaceVersion)
target_compile_definitions(other_cuda_library PRIVATE FAKE_INTERFACE=0)
set_target_properties(fake_ort fake_cuda_driver fake_cuda_library other_cuda_library PROPERTIES PREFIX "")
foreach(test IN ITEMS ort_test cuda_library_test)
  target_compile_definitions(${test} PRIVATE FAKE_FOLDER="${CMAKE_CURRENT_BINARY_DIR}")
endforeach()
add_dependencies(ort_test fake_ort fake_cuda_driver)
add_dependencies(cuda_library_test fake_cuda_driver fake_cuda_library other_cuda_library)

# The header as a C program sees it, against the shared library and its exported symbols.
add_executable(header_test "${pilotfish_test_folder}/header_test.c")
set_target_properties(header_test PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
target_compile_options(header_test PRIVATE -Wall -Wextra -pedantic -Werror)
target_link_libraries(header_test PRIVATE pilotfish)
if(PILOTFISH_SANITIZE)
  target_link_options(header_test PRIVATE -fsanitize=address,undefined)
endif()
add_test(NAME header_test COMMAND header_test)

# Not a test: prints digests of a bundle's logits and tokens, which tests/aarch64.sh compares.
add_executable(bundle_digest EXCLUDE_FROM_ALL "${pilotfish_test_folder}/bundle_digest.c")
set_target_properties(bundle_digest PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
target_compile_options(bundle_digest PRIVATE -Wall -Wextra -pedantic -Werror)
target_link_libraries(bundle_digest PRIVATE pilotfish)

# Not a test: prints what choosing a token takes.
add_executable(sampler_bench "${pilotfish_test_folder}/sampler_bench.cpp")
target_link_libraries(sampler_bench PRIVATE pilotfish_objects)

# Not a test either: tests/fuzz tries bundles in it. It has its own open(), which ONNX Runtime must find.
add_executable(open_bundle "${pilotfish_test_folder}/../fuzz/open_bundle.cpp")
set_target_properties(open_bundle PROPERTIES ENABLE_EXPORTS ON)
target_compile_options(open_bundle PRIVATE -Wall -Wextra -Werror)
target_link_libraries(open_bundle PRIVATE pilotfish ${CMAKE_DL_LIBS})
if(PILOTFISH_SANITIZE)
  target_link_options(open_bundle PRIVATE -fsanitize=address,undefined)
endif()
