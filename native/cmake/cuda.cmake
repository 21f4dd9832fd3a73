# libpilotfish_cuda: the CUDA kernels, a second library that is loaded only where a GPU is asked for. Configure with
# -DPILOTFISH_CUDA=ON; -DPILOTFISH_CUDA_ARCHITECTURES picks from 80, 86, 87 (Orin), 89, 90 and 120.
set(PILOTFISH_CUDA_ARCHITECTURES "80;86;89;90;120" CACHE STRING "Compute capabilities that the CUDA kernels are built for")
foreach(architecture IN LISTS PILOTFISH_CUDA_ARCHITECTURES)
  if(NOT architecture MATCHES "^(80|86|87|89|90|120)$")
    message(FATAL_ERROR "PILOTFISH_CUDA_ARCHITECTURES: ${architecture} is not one of 80, 86, 87, 89, 90, 120")
  endif()
endforeach()
# Device code for each, and the newest as PTX for what comes after it.
list(TRANSFORM PILOTFISH_CUDA_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE pilotfish_cuda_targets)
list(GET PILOTFISH_CUDA_ARCHITECTURES -1 pilotfish_cuda_newest)
set(CMAKE_CUDA_ARCHITECTURES ${pilotfish_cuda_targets} ${pilotfish_cuda_newest}-virtual)
enable_language(CUDA)

add_library(pilotfish_cuda SHARED
  cuda/lowbit_linear.cu
  cuda/lowbit_plan.cu
  cuda/lowbit_repack.cu)
target_include_directories(pilotfish_cuda PUBLIC cuda ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
set_target_properties(pilotfish_cuda PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
target_compile_options(pilotfish_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xcompiler=-Wall,-Wextra,-Werror>)
