# Finds Apple's MLX: a folder with include/mlx/mlx.h and lib/libmlx, as its wheels and Homebrew lay it
# out. Its own CMake files name frameworks by paths of the machine that built it, so they are not used.
#   KAKEYA_MLX_ROOT   where to look first
#   MLX_FOUND, MLX_VERSION, MLX_ROOT_DIR, target MLX::mlx
find_path(
  MLX_ROOT_DIR include/mlx/mlx.h
  HINTS ${KAKEYA_MLX_ROOT}
  PATHS ${CMAKE_CURRENT_LIST_DIR}/../build/mlx-wheel/mlx /opt/homebrew /usr/local
  NO_DEFAULT_PATH)
mark_as_advanced(MLX_ROOT_DIR)
set(MLX_LIBRARY MLX_LIBRARY-NOTFOUND)
if(MLX_ROOT_DIR)
  find_library(MLX_LIBRARY mlx PATHS ${MLX_ROOT_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
  file(STRINGS ${MLX_ROOT_DIR}/include/mlx/version.h lines REGEX "define MLX_VERSION_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM lines REPLACE "[^0-9]*([0-9]+)" "\\1")
  list(JOIN lines "." MLX_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  MLX
  REQUIRED_VARS MLX_LIBRARY MLX_ROOT_DIR
  VERSION_VAR MLX_VERSION)

if(MLX_FOUND AND NOT TARGET MLX::mlx)
  add_library(MLX::mlx SHARED IMPORTED)
  set_target_properties(
    MLX::mlx PROPERTIES IMPORTED_LOCATION ${MLX_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${MLX_ROOT_DIR}/include)
  if(APPLE)
    set(MLX_FRAMEWORKS "-framework Metal" "-framework Foundation" "-framework QuartzCore" "-framework Accelerate")
    set_property(TARGET MLX::mlx PROPERTY INTERFACE_LINK_LIBRARIES ${MLX_FRAMEWORKS})
  endif()
endif()
