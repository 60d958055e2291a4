# Packages of the release build (`make package`): one for Debian with the program, its manual, the demo
# model and a service; and a tarball with the library too.
set(KAKEYA_MANUAL ${PROJECT_BINARY_DIR}/generated/man)

# tools/make_manual writes it before a package is made.
install(DIRECTORY ${KAKEYA_MANUAL}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program OPTIONAL)

# Where systemd and the service look, whatever the prefix: for the Debian package alone.
install(FILES deploy/serve.toml DESTINATION /etc/kakeya COMPONENT service EXCLUDE_FROM_ALL)
install(FILES deploy/kakeya.service DESTINATION /lib/systemd/system COMPONENT service
        EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME kakeya)
set(CPACK_PACKAGE_VENDOR Kakeya)
set(CPACK_PACKAGE_CONTACT "The Kakeya developers <kakeya@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_DESCRIPTION
    "Runs Gemma, Llama, Mistral and Qwen with speculative decoding whose output is that of plain decoding, byte
for byte, in memory that is bounded: a program, and a server that speaks OpenAI's, Anthropic's and
Ollama's APIs and gRPC. A small demo model comes with it.")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package_components.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)  # `kakeya pull` compares with them
set(deb ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${deb}/postinst ${deb}/prerm ${deb}/postrm ${deb}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
