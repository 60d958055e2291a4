# Sources of one folder are compiled together if CMAKE_UNITY_BUILD is on, which takes less than half of
# the time where everything is built once: most of a source's time goes into headers. The preset dev
# compiles each alone, for those who change one and build again.

# Sources in KAKEYA_COMPILED_ALONE, named from the top folder, stay alone: those that tools/mutate
# breaks one after the other.

# Of targets that do not ask for folders: more than twice as many as CMake takes, for headers are what
# takes time.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 28)

# Call it after the target's last source. Without it a target's sources are taken together in their
# order, whatever the folder.
function(kakeya_compile_folders_together target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(base ${target} SOURCE_DIR)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${base} NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    # Folders of evaluations have few sources each: they are one.
    string(REGEX REPLACE "^((tests/)?eval)/.*" "\\1" folder ${folder})
    string(MAKE_C_IDENTIFIER ${folder} group)
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
    if(name IN_LIST KAKEYA_COMPILED_ALONE)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target}
                                  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()
