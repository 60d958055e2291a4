# Both ends of `kakeya bridge` on this machine; its commands are tested by cli/bridge_test.cc.
kakeya_test(bridge_test base/child_process_test.cc bridge/folder_mailbox_test.cc bridge/git_mailbox_test.cc
            bridge/keys_test.cc bridge/presets_test.cc bridge/requester_test.cc bridge/service_test.cc)
target_link_libraries(bridge_test PRIVATE kakeya_bridge)
