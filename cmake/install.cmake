# What `cmake --install` puts where: the binary, the library with its headers, and the files by which
# other projects find them (find_package(kakeya), pkg-config).
include(CMakePackageConfigHelpers)

set(KAKEYA_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kakeya)

# MLX below this project's folder, as `make mlx` lays it, goes with the installation, laid as in the wheel, whose
# libraries find each other so. Any other MLX stays where it is.
set(KAKEYA_INSTALLED_MLX "")
if(KAKEYA_WITH_MLX)
  cmake_path(GET MLX_LIBRARY FILENAME mlx_file)
  cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${MLX_ROOT_DIR} NORMALIZE mlx_goes_along)
  if(mlx_goes_along)
    set(KAKEYA_MLX_FOLDER ${CMAKE_INSTALL_LIBDIR}/kakeya/mlx/lib)
    file(GLOB needed_by_mlx LIST_DIRECTORIES ON ${MLX_ROOT_DIR}/../*.libs)
    install(DIRECTORY ${MLX_ROOT_DIR}/lib/ DESTINATION ${KAKEYA_MLX_FOLDER} COMPONENT program
            USE_SOURCE_PERMISSIONS)
    install(DIRECTORY ${needed_by_mlx} DESTINATION ${CMAKE_INSTALL_LIBDIR}/kakeya COMPONENT program
            USE_SOURCE_PERMISSIONS)
    set(own_folder $<IF:$<PLATFORM_ID:Darwin>,@loader_path,$ORIGIN>)
    set(search_path ${own_folder}/../${KAKEYA_MLX_FOLDER})
    set(KAKEYA_PKG_CONFIG_MLX "-L\${libdir}/kakeya/mlx/lib -Wl,-rpath,\${libdir}/kakeya/mlx/lib -lmlx")
  else()
    cmake_path(GET MLX_LIBRARY PARENT_PATH KAKEYA_MLX_FOLDER)
    set(search_path ${KAKEYA_MLX_FOLDER})
    set(KAKEYA_PKG_CONFIG_MLX "-L${KAKEYA_MLX_FOLDER} -Wl,-rpath,${KAKEYA_MLX_FOLDER} -lmlx")
  endif()
  list(JOIN MLX_FRAMEWORKS " " frameworks)
  string(APPEND KAKEYA_PKG_CONFIG_MLX " ${frameworks}")
  set(KAKEYA_INSTALLED_MLX ${KAKEYA_MLX_FOLDER}/${mlx_file})
  foreach(program kakeya_cli kakeya_train_cli)
    if(TARGET ${program})
      set_property(TARGET ${program} PROPERTY INSTALL_RPATH ${search_path})
    endif()
  endforeach()
endif()

if(TARGET kakeya_cli)
  install(TARGETS kakeya_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright
        COMPONENT program)
# The program has xgrammar in it, whose licence goes with it.
if(KAKEYA_WITH_XGRAMMAR)
  install(FILES ${KAKEYA_XGRAMMAR_ROOT}/LICENSE ${KAKEYA_XGRAMMAR_ROOT}/NOTICE
          DESTINATION ${CMAKE_INSTALL_DOCDIR}/xgrammar
          COMPONENT program)
endif()
if(TARGET kakeya_train_cli)
  install(TARGETS kakeya_train_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
install(
  TARGETS kakeya
  EXPORT kakeyaTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  INCLUDES
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kakeya DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT development)
install(
  EXPORT kakeyaTargets
  NAMESPACE kakeya::
  DESTINATION ${KAKEYA_CMAKE_DIR}
  COMPONENT development)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/kakeyaConfig.cmake.in ${PROJECT_BINARY_DIR}/kakeyaConfig.cmake
  INSTALL_DESTINATION ${KAKEYA_CMAKE_DIR}
  PATH_VARS KAKEYA_INSTALLED_MLX)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kakeyaConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kakeyaConfig.cmake
              ${PROJECT_BINARY_DIR}/kakeyaConfigVersion.cmake DESTINATION ${KAKEYA_CMAKE_DIR}
        COMPONENT development)

configure_file(${PROJECT_SOURCE_DIR}/cmake/kakeya.pc.in ${PROJECT_BINARY_DIR}/kakeya.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kakeya.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)

# The demo model, where the installed binary looks for it; its goldens are for the tests only.
install(
  DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo
  DESTINATION ${CMAKE_INSTALL_DATADIR}/kakeya/models
  COMPONENT program
  PATTERN golden EXCLUDE)

# The prompt sets of `kakeya eval`, with their licences.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/eval/data DESTINATION ${CMAKE_INSTALL_DATADIR}/kakeya/eval
        COMPONENT program)

# Made by apps/CMakeLists.txt.
install(
  FILES ${PROJECT_BINARY_DIR}/generated/kakeya.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  COMPONENT program
  RENAME kakeya)
