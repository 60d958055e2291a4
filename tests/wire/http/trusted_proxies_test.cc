// For whom a trusted proxy asks, and that nobody else is believed.
#include "wire/http/trusted_proxies.h"

#include <gtest/gtest.h>

namespace kakeya::wire {
namespace {

TrustedProxies trusting(const std::vector<std::string>& proxies) {
  return TrustedProxies::parse(proxies).value();
}

TEST(TrustedProxies, AreBelievedAndNobodyElse) {
  const TrustedProxies proxies = trusting({"10.0.0.0/8", "192.0.2.7", "fd00::/8"});
  for (const char* const peer :
       {"10.0.0.1", "10.255.3.4", "192.0.2.7", "fd12::1", "::ffff:10.0.0.1"}) {
    EXPECT_EQ(proxies.client_of(peer, "", "198.51.100.1"), "198.51.100.1") << peer;
    EXPECT_EQ(proxies.client_of(peer, "for=198.51.100.1", ""), "198.51.100.1") << peer;
    EXPECT_EQ(proxies.client_of(peer, "", ""), peer);
  }
  for (const char* const peer : {"11.0.0.1", "192.0.2.8", "fe00::1", "unix", "unknown", ""}) {
    EXPECT_EQ(proxies.client_of(peer, "for=198.51.100.1", "198.51.100.1"), peer);
  }
  EXPECT_EQ(trusting({"unix"}).client_of("unix", "", "198.51.100.1"), "198.51.100.1");
  EXPECT_EQ(trusting({}).client_of("127.0.0.1", "", "198.51.100.1"), "127.0.0.1");
  EXPECT_EQ(trusting({"0.0.0.0/0"}).client_of("9.9.9.9", "", "::1"), "::1");
}

TEST(TrustedProxies, TheLastAddressThatIsNoProxyIsTheClient) {
  const TrustedProxies proxies = trusting({"10.0.0.0/8"});
  const auto client = [&](const char* forwarded, const char* x_forwarded_for) {
    return proxies.client_of("10.0.0.1", forwarded, x_forwarded_for);
  };
  // Clients have written the part before it.
  EXPECT_EQ(client("", "1.1.1.1, 2.2.2.2,10.9.9.9"), "2.2.2.2");
  EXPECT_EQ(client("", "rubbish, \"; , 2.2.2.2 ,\t10.9.9.9"), "2.2.2.2");
  EXPECT_EQ(client("for=1.1.1.1, for=2.2.2.2;proto=http, By=x;For=\"10.9.9.9:80\"", ""), "2.2.2.2");
  EXPECT_EQ(client("for=\"[2001:DB8::1]:4711\"", ""), "2001:db8::1");
  EXPECT_EQ(client("", "[2001:db8::1]:80"), "2001:db8::1");
  EXPECT_EQ(client("", "2001:db8::1"), "2001:db8::1");
  EXPECT_EQ(client("", "2.2.2.2:5555"), "2.2.2.2");
  EXPECT_EQ(client("", "::ffff:2.2.2.2"), "2.2.2.2");
  // A proxy that asks for itself.
  EXPECT_EQ(client("", "10.3.3.3, 10.4.4.4"), "10.3.3.3");
  EXPECT_EQ(client("for=2.2.2.2", "2.2.2.2"), "2.2.2.2");
}

TEST(TrustedProxies, WhatIsMalformedSaysNothing) {
  const TrustedProxies proxies = trusting({"10.0.0.0/8"});
  for (const char* const field :
       {"unknown", "2.2.2.2, ", ",", "2.2.2", "2.2.2.2:", "2.2.2.2:x", "2.2.2.2:80:80", "[::1",
        "[::1]80", "_hidden", "2.2.2.2 10.0.0.1", "unix", "2.2.2.2, x, 10.0.0.2"}) {
    EXPECT_EQ(proxies.client_of("10.0.0.1", "", field), "10.0.0.1") << field;
  }
  for (const char* const field :
       {"for=unknown", "for=_hidden", "2.2.2.2", "for", "for=", "by=2.2.2.2", "for=\"2.2.2.2",
        "for=2.2.2.2;for=3.3.3.3", "for=2.2.2.2,", "for=\"2.2.2.2\\\"\"", "=", ";"}) {
    EXPECT_EQ(proxies.client_of("10.0.0.1", field, ""), "10.0.0.1") << field;
  }
  // A proxy that sets one passes on the other, which the client has written.
  EXPECT_EQ(proxies.client_of("10.0.0.1", "for=3.3.3.3", "2.2.2.2"), "10.0.0.1");
}

TEST(TrustedProxies, WhatIsNoAddressOrNetworkIsRefused) {
  for (const char* const proxy : {"", "proxy", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "::/129",
                                  "10.0.0.0/8/8", "10.0.0.1:80", "/8", "*"}) {
    const std::vector<std::string> proxies = {"127.0.0.1", proxy};
    EXPECT_FALSE(TrustedProxies::parse(proxies)) << proxy;
  }
}

}  // namespace
}  // namespace kakeya::wire
