# The engine's sources, in the order of the path from a bundle to tokens, and its tests.
set(pilotfish_engine_sources
  src/api.cpp
  src/status.cpp
  src/options.cpp
  src/sha256.cpp
  src/manifest.cpp
  src/pages.cpp
  src/bundle_files.cpp
  src/memory_plan.cpp
  src/ort.cpp
  src/kv_blocks.cpp
  src/kv_cache.cpp
  src/model.cpp
  src/row_math.cpp
  src/sampler.cpp
  src/token_chooser.cpp
  src/prefill.cpp
  src/drafters/model_drafter.cpp
  src/controller.cpp
  src/verify.cpp
  src/accept.cpp
  src/engine.cpp
  src/request.cpp)
set_source_files_properties(src/row_math.cpp PROPERTIES COMPILE_OPTIONS "-O3;-Wno-psabi")

set(pilotfish_engine_tests
  accept_test
  controller_test
  kv_blocks_test
  manifest_test
  memory_plan_test
  random_stream_test
  row_math_test
  sampler_test
  sha256_test
  token_tree_test)
