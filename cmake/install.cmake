# What `cmake --install` puts where: the binary, the library with its headers, and the files by which
# other projects find them (find_package(kakeya), pkg-config).
include(CMakePackageConfigHelpers)

set(KAKEYA_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kakeya)

if(TARGET kakeya_cli)
  install(TARGETS kakeya_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS kakeya_train_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(
  TARGETS kakeya
  EXPORT kakeyaTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kakeya DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(
  EXPORT kakeyaTargets
  NAMESPACE kakeya::
  DESTINATION ${KAKEYA_CMAKE_DIR})

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/kakeyaConfig.cmake.in ${PROJECT_BINARY_DIR}/kakeyaConfig.cmake
  INSTALL_DESTINATION ${KAKEYA_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kakeyaConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kakeyaConfig.cmake
              ${PROJECT_BINARY_DIR}/kakeyaConfigVersion.cmake DESTINATION ${KAKEYA_CMAKE_DIR})

configure_file(${PROJECT_SOURCE_DIR}/cmake/kakeya.pc.in ${PROJECT_BINARY_DIR}/kakeya.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kakeya.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The demo model, where the installed binary looks for it; its goldens are for the tests only.
install(
  DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo
  DESTINATION ${CMAKE_INSTALL_DATADIR}/kakeya/models
  PATTERN golden EXCLUDE)

# The prompt sets of `kakeya eval`, with their licences.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/eval/data DESTINATION ${CMAKE_INSTALL_DATADIR}/kakeya/eval)

# Made by apps/CMakeLists.txt.
install(
  FILES ${PROJECT_BINARY_DIR}/generated/kakeya.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME kakeya)
