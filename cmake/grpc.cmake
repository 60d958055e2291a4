# KAKEYA_WITH_GRPC: whether `kakeya serve --grpc` is in the build. Debian's libgrpc++-dev,
# libprotobuf-dev and protobuf-compiler-grpc have what it needs.
set(KAKEYA_GRPC AUTO CACHE STRING "Serve sessions over gRPC: ON, OFF, or AUTO where gRPC is found")
set_property(CACHE KAKEYA_GRPC PROPERTY STRINGS AUTO ON OFF)
if(NOT KAKEYA_GRPC MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KAKEYA_GRPC must be AUTO, ON or OFF but is '${KAKEYA_GRPC}'")
endif()

set(KAKEYA_WITH_GRPC OFF)
# The libraries have no sanitizers in them: a thread sanitizer sees half of what their threads do.
if(KAKEYA_GRPC STREQUAL ON OR (KAKEYA_GRPC STREQUAL AUTO AND NOT KAKEYA_SANITIZE MATCHES thread))
  # gRPC is found without its messages' library, too, but then cannot be linked.
  find_package(Protobuf QUIET)
  if(Protobuf_FOUND)
    find_package(gRPC CONFIG QUIET)
  endif()
  find_program(KAKEYA_PROTOC protoc)
  find_program(KAKEYA_GRPC_PLUGIN grpc_cpp_plugin)
  if(gRPC_FOUND AND KAKEYA_PROTOC AND KAKEYA_GRPC_PLUGIN)
    set(KAKEYA_WITH_GRPC ON)
  elseif(KAKEYA_GRPC STREQUAL ON)
    message(FATAL_ERROR "KAKEYA_GRPC is ON, but libgrpc++-dev, libprotobuf-dev or protobuf-compiler-grpc is not installed")
  else()
    message(STATUS "Built without gRPC: libgrpc++-dev, libprotobuf-dev or protobuf-compiler-grpc is not installed")
  endif()
endif()

# Makes what sources include and no compiler has made yet: for tools that read sources alone.
add_custom_target(generated)

# kakeya_add_proto(TARGET FILE): a library of the messages and services of proto/FILE; sources include
# them as "kakeya/v1/runtime.pb.h".
function(kakeya_add_proto target file)
  set(folder ${PROJECT_SOURCE_DIR}/proto)
  set(made ${PROJECT_BINARY_DIR}/generated)
  string(REGEX REPLACE "\\.proto$" "" base ${made}/${file})
  add_custom_command(
    OUTPUT ${base}.pb.cc ${base}.grpc.pb.cc ${base}.pb.h ${base}.grpc.pb.h
    COMMAND ${CMAKE_COMMAND} -E make_directory ${made}
    COMMAND ${KAKEYA_PROTOC} --cpp_out=${made} --grpc_out=${made} --plugin=protoc-gen-grpc=${KAKEYA_GRPC_PLUGIN}
            -I${folder} ${folder}/${file}
    DEPENDS ${folder}/${file}
    VERBATIM)
  add_custom_target(${target}_files DEPENDS ${base}.pb.cc ${base}.grpc.pb.cc ${base}.pb.h ${base}.grpc.pb.h)
  add_dependencies(generated ${target}_files)
  add_library(${target} STATIC ${base}.pb.cc ${base}.grpc.pb.cc)
  target_include_directories(${target} SYSTEM PUBLIC ${made})
  target_link_libraries(${target} PUBLIC gRPC::grpc++)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  target_compile_options(${target} PRIVATE -O1 -w)
endfunction()
