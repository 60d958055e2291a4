# KAKEYA_WITH_LIBCURL: whether `kakeya pull` can fetch models. Debian's libcurl4-openssl-dev has what it needs; macOS brings it.
set(KAKEYA_LIBCURL AUTO CACHE STRING "Fetch models with libcurl: ON, OFF, or AUTO where it is found")
set_property(CACHE KAKEYA_LIBCURL PROPERTY STRINGS AUTO ON OFF)
if(NOT KAKEYA_LIBCURL MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KAKEYA_LIBCURL must be AUTO, ON or OFF but is '${KAKEYA_LIBCURL}'")
endif()

set(KAKEYA_WITH_LIBCURL OFF)
if(NOT KAKEYA_LIBCURL STREQUAL OFF)
  find_package(CURL 7.85 QUIET)  # which takes protocols by their names
  if(CURL_FOUND)
    set(KAKEYA_WITH_LIBCURL ON)
  elseif(KAKEYA_LIBCURL STREQUAL ON)
    message(FATAL_ERROR "KAKEYA_LIBCURL is ON, but libcurl4-openssl-dev is not installed")
  else()
    message(STATUS "Built without fetching of models: libcurl4-openssl-dev is not installed")
  endif()
endif()
