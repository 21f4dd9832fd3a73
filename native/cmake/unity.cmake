# PILOTFISH_UNITY: sources are compiled in groups, which takes a fraction of the time, for builds that are only tried.
# Those with flags or macros of their own, and the platform's, stay alone; an engine's and an operator's source share none.
foreach(part IN ITEMS engine ops)
  set(sources ${pilotfish_${part}_sources})
  if(part STREQUAL "engine")
    list(REMOVE_ITEM sources ${pilotfish_platform_sources})
  endif()
  list(FILTER sources EXCLUDE REGEX "_neon\\.cpp$")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
  execute_process(
    COMMAND "${Python_EXECUTABLE}" cmake/unity_groups.py ${sources} WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  foreach(source group IN ZIP_LISTS sources groups)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${part}_${group})
  endforeach()
endforeach()
set_target_properties(pilotfish_objects PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
