// `kakeya serve` from its start to a signal.
#include "program.h"

namespace kakeya::test {
namespace {

TEST_F(Cli, ServesUntilASignalAndEndsWell) {
  for (const char* signal : {"INT", "TERM"}) {
    // A second server on the same port is refused while the first one runs. Background processes of
    // a shell ignore SIGINT, unless it has job control.
    const std::string script =
        "set -m; : > " + folder_ + "/out; " + KAKEYA_BINARY + " serve " + kDemoFlag +
        "--port 0 > " + folder_ + "/out 2> " + folder_ + "/err & server=$!; " +
        "while ! grep -q temperature " + folder_ + "/out && kill -0 $server; do :; done; " +
        "port=$(sed -n '1s/^http:..127.0.0.1:\\([0-9]*\\) .*/\\1/p' " + folder_ + "/out); " +
        KAKEYA_BINARY + " serve " + kDemoFlag + "--port $port 2> " + folder_ + "/second; " +
        "[ $? = 2 ] || { kill $server; exit 9; }; kill -" + signal + " $server; wait $server";
    std::ofstream(folder_ + "/script") << script;
    const int status = std::system(("bash " + folder_ + "/script").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 0) << slurp(folder_ + "/err");
    EXPECT_NE(slurp(folder_ + "/out").find("/v1/chat/completions"), std::string::npos);
    const std::string second = slurp(folder_ + "/second");
    EXPECT_NE(second.find("cannot be listened on"), std::string::npos) << second;
    EXPECT_EQ(std::count(second.begin(), second.end(), '\n'), 1) << second;
  }
}

TEST_F(Cli, ServesOnAfterAHangupWithAnotherLog) {
  const std::string log = folder_ + "/log";
  const std::string keys = folder_ + "/keys";
  const auto wait_for = [&](const char* event) {
    return "while ! grep -q '" + std::string(event) + "' " + log +
           " && kill -0 $server; do :; done; ";
  };
  const std::string script =
      KAKEYA_BINARY " serve --new-key ann > " + keys + " 2> /dev/null; : > " + log +
      "; " KAKEYA_BINARY " serve " + kDemoFlag + "--port 0 --log " + log + " --keys " + keys +
      " > /dev/null 2> " + folder_ + "/err & server=$!; " + wait_for("started") + "mv " + log +
      " " + log + ".1; : > " + log + "; kill -HUP $server; " + wait_for("keys reloaded") +
      "kill -TERM $server; wait $server";
  std::ofstream(folder_ + "/script") << script;
  const int status = std::system(("bash " + folder_ + "/script").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0) << slurp(folder_ + "/err");
  EXPECT_EQ(slurp(log + ".1").find("keys reloaded"), std::string::npos);
  EXPECT_NE(slurp(log).find("stopped"), std::string::npos);
}

TEST_F(Cli, RefusesToServeOtherMachinesWithOneLine) {
  for (const char* host : {"0.0.0.0", "192.168.0.1", "::"}) {
    expect_refusal(std::string("serve --host ") + host, "give --keys, --tls-cert and --tls-key");
  }
  expect_refusal("serve --host example.com", "--host must be an address");
  expect_refusal("serve --prompt-cache-shared --trusted-proxy nonsense",
                 "--trusted-proxy must be an address");
  expect_refusal("serve --tls-cert /dev/null", "--tls-key");
  expect_refusal("serve --tls-cert /dev/null --tls-key /dev/null", "--tls-cert must be");
  expect_refusal("serve --keys /dev/null", "there is no key");
  expect_refusal("serve --keys /none", "cannot be opened");
  expect_refusal("serve --log /", "--log");
  expect_refusal("serve --log-level loud", "--log-level");
  expect_refusal("serve --watchdog -1", "--watchdog");
  expect_refusal("serve --socket /tmp/x --port 80", "--socket");
  expect_refusal("serve --new-key a:b", "name");
  expect_refusal("serve --new-key ''", "--new-key");
  for (const char* host :
       {"https://llm.example", "llm.example:8080", "llm.example/v1", "a b", "*"}) {
    expect_refusal(std::string("serve --allow-host '") + host + "'", "--allow-host must be a name");
  }
  for (const char* origin : {"example.com", "https://example.com/", "https://", "https://*.a"}) {
    expect_refusal(std::string("serve --allow-origin '") + origin + "'", "--allow-origin must be");
  }
  expect_refusal("serve --port 70000", "port");
  expect_refusal("serve --parallel 0", "--parallel");
  expect_refusal("serve --queue -1", "--queue");
  expect_refusal("serve --sessions 0", "--sessions");
  expect_refusal("serve --session-ttl -1", "--session-ttl");
  expect_refusal("serve " + kDemoFlag + "--port 0 --sessions-dir /dev/null/none", "/dev/null/none");
  expect_refusal("serve --grpc nowhere", "expected HOST:PORT");
  expect_refusal("serve --grpc 0.0.0.0:50051", "give --keys, --tls-cert and --tls-key");
}

// A refusal tells which value was taken.
TEST_F(Cli, TakesSettingsFromTheEnvironmentAndAFile) {
  const std::string file = folder_ + "/serve.toml";
  const std::string with_file = "serve --config " + file;
  std::ofstream(file) << "# for a container\nhost = \"192.168.0.1\"\nport = 8081\n";
  expect_refusal(with_file, "192.168.0.1");
  expect_refusal(with_file + " --host 192.168.0.2", "192.168.0.2");
  ::setenv("KAKEYA_SERVE_HOST", "192.168.0.3", 1);
  expect_refusal("serve", "192.168.0.3");
  expect_refusal(with_file, "192.168.0.3");
  expect_refusal(with_file + " --host 192.168.0.2", "192.168.0.2");
  ::setenv("KAKEYA_SERVE_SOCKET", "/tmp/x", 1);
  expect_refusal("serve", "--socket");
  ::unsetenv("KAKEYA_SERVE_HOST");
  ::unsetenv("KAKEYA_SERVE_SOCKET");
  ::setenv("KAKEYA_SERVE_CONFIG", file.c_str(), 1);
  expect_refusal("serve", "192.168.0.1");
  ::unsetenv("KAKEYA_SERVE_CONFIG");
  for (const char* name : {"PORT", "PARALLEL"}) {
    const std::string variable = std::string("KAKEYA_SERVE_") + name;
    ::setenv(variable.c_str(), "70000x", 1);
    expect_refusal("serve", variable);
    ::unsetenv(variable.c_str());
  }
  for (const char* text : {"port = 70000", "prot = 80", "new-key = \"ann\"", "[a]\nport = 80",
                           "config = \"x\"", "port = [1, 2]"}) {
    std::ofstream(file) << text << "\n";
    expect_refusal(with_file, file);
  }
  expect_refusal("serve --config /none", "/none");
  expect_refusal("serve --config " + folder_, folder_);
}

TEST_F(Cli, ChatsWithAServer) {
  const std::string url = " chat --temperature 0 --url unix:" + folder_ + "/socket ";
  const std::string script =
      std::string(": > ") + folder_ +
      "/served; printf '%s\\n' 'Count from 5 to 12.' /reset 'Count from 5 to 12.' > " + folder_ +
      "/lines; " + KAKEYA_BINARY + " serve --new-key ann > " + folder_ + "/keys 2> " + folder_ +
      "/key; " + KAKEYA_BINARY + " serve " + kDemoFlag + "--keys " + folder_ + "/keys --socket " +
      folder_ + "/socket > " + folder_ + "/served 2>&1 & server=$!; " +
      "while ! grep -q temperature " + folder_ + "/served && kill -0 $server; do :; done; " +
      KAKEYA_BINARY + url + "< " + folder_ + "/lines > " + folder_ +
      "/refused 2>&1; [ $? = 2 ] || { kill $server; exit 8; }; " +
      "export KAKEYA_API_KEY=$(tail -n 1 " + folder_ + "/key); " + KAKEYA_BINARY + url + "< " +
      folder_ + "/lines > " + folder_ + "/talk 2> " + folder_ +
      "/notes || { kill $server; exit 9; }; " + "kill $server; wait $server";
  std::ofstream(folder_ + "/script") << script;
  const int status = std::system(("bash " + folder_ + "/script").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0) << slurp(folder_ + "/served") << slurp(folder_ + "/notes");
  const std::string answer = "5, 6, 7, 8, 9, 10, 11, 12.\n";
  EXPECT_EQ(slurp(folder_ + "/talk"), answer + answer);
  EXPECT_NE(slurp(folder_ + "/refused").find("401"), std::string::npos);
}

TEST_F(Cli, ChatsOverHttp) {
  const std::string script =
      std::string(": > ") + folder_ + "/served; " + KAKEYA_BINARY + " serve " + kDemoFlag +
      "--port 0 > " + folder_ + "/served 2>&1 & server=$!; " + "while ! grep -q temperature " +
      folder_ + "/served && kill -0 $server; do :; done; " +
      "url=$(sed -n '1s/^\\(http:[^ ]*\\) .*/\\1/p' " + folder_ + "/served); " +
      "printf 'Count from 5 to 12.\\r\\nCount from 3 to 8.' | " + KAKEYA_BINARY +
      " chat --temperature 0 --max-tokens 40 --url $url/v1 > " + folder_ + "/talk 2> " + folder_ +
      "/notes || { kill $server; exit 9; }; " + "kill $server; wait $server";
  std::ofstream(folder_ + "/script") << script;
  const int status = std::system(("bash " + folder_ + "/script").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0) << slurp(folder_ + "/served") << slurp(folder_ + "/notes");
  EXPECT_EQ(slurp(folder_ + "/talk"), "5, 6, 7, 8, 9, 10, 11, 12.\n3, 4, 5, 6, 7, 8.\n");
}

TEST_F(Cli, AScriptSeesByTheExitCodeThatItsQuestionWasRefused) {
  const std::string socket = folder_ + "/socket";
  const std::string chat = std::string("printf 'Count from 5 to 12.\\n' | ") + KAKEYA_BINARY +
                           " chat --url unix:" + socket + " 2> " + folder_ + "/notes";
  EXPECT_EQ(while_served(socket, chat + " --temperature 9 > /dev/null"), 2);
  EXPECT_NE(slurp(folder_ + "/notes").find("temperature"), std::string::npos);
  EXPECT_EQ(while_served(socket, chat + " --temperature 0 > /dev/null"), 0);
}

TEST_F(Cli, RefusesToChatWithNobodyWithOneLine) {
  expect_refusal("chat --url http://127.0.0.1:1", "start `kakeya serve` first");
  expect_refusal("chat --url unix:/none", "start `kakeya serve` first");
  for (const char* url : {"ftp://a", "http://", "http://a:b", "http://a:", "http://a/b", "http://[",
                          "http://a@b", "http://127.0.0.1:99999", "unix:"}) {
    expect_refusal(std::string("chat --url '") + url + "'", "the server's address must be");
  }
  expect_refusal("chat --key-file /none", "cannot open /none");
}

TEST_F(Cli, MakesKeysThatItTakes) {
  const Outcome made = kakeya("serve --new-key ann");
  EXPECT_EQ(made.exit_code, 0);
  EXPECT_TRUE(made.out.starts_with("ann:")) << made.out;
  EXPECT_NE(made.err.find("kakeya-"), std::string::npos) << made.err;
  EXPECT_EQ(made.out.find("kakeya-"), std::string::npos);
  std::ofstream(folder_ + "/keys") << made.out << made.out;
  expect_refusal("serve --keys " + folder_ + "/keys", "line 2: the name 'ann' comes twice");
}

}  // namespace
}  // namespace kakeya::test
