# KAKEYA_WITH_XGRAMMAR: whether answers can be held to schemas and grammars. tools/build_xgrammar fetches
# and builds the library, as `make build` does.
set(KAKEYA_XGRAMMAR AUTO CACHE STRING "Hold answers to grammars: ON, OFF, or AUTO where xgrammar was built")
set_property(CACHE KAKEYA_XGRAMMAR PROPERTY STRINGS AUTO ON OFF)
set(KAKEYA_XGRAMMAR_ROOT ${PROJECT_SOURCE_DIR}/build/xgrammar CACHE PATH "Folder of xgrammar, with include and lib")
if(NOT KAKEYA_XGRAMMAR MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KAKEYA_XGRAMMAR must be AUTO, ON or OFF but is '${KAKEYA_XGRAMMAR}'")
endif()

set(KAKEYA_WITH_XGRAMMAR OFF)
set(xgrammar_library ${KAKEYA_XGRAMMAR_ROOT}/lib/libxgrammar.a)
if(NOT KAKEYA_XGRAMMAR STREQUAL OFF AND EXISTS ${xgrammar_library})
  set(KAKEYA_WITH_XGRAMMAR ON)
  add_library(xgrammar::xgrammar STATIC IMPORTED GLOBAL)
  set_target_properties(
    xgrammar::xgrammar PROPERTIES IMPORTED_LOCATION ${xgrammar_library}
                                  INTERFACE_INCLUDE_DIRECTORIES ${KAKEYA_XGRAMMAR_ROOT}/include)
elseif(KAKEYA_XGRAMMAR STREQUAL ON)
  message(FATAL_ERROR "KAKEYA_XGRAMMAR is ON, but ${xgrammar_library} is not there: tools/build_xgrammar makes it")
else()
  message(STATUS "Built without grammars: tools/build_xgrammar was not run, or KAKEYA_XGRAMMAR is OFF")
endif()
