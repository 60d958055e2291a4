kakeya_test(server_test server/access_test.cc server/answer_splitter_test.cc server/driver_test.cc server/http_rules_test.cc server/http_server_test.cc server/keys_test.cc server/openai_read_test.cc server/prefix_cache_test.cc server/requests_over_http_test.cc server/server_log_test.cc
            server/text_routes_test.cc server/watchdog_test.cc)
target_link_libraries(server_test PRIVATE kakeya_server Boost::headers OpenSSL::SSL)
