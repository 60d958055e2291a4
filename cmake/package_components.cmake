# Read by CPack for each generator: the parts of an installation that its package has.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL program service)
else()
  set(CPACK_COMPONENTS_ALL program development)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
