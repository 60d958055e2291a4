// A server of chat completions that answers "ok" and keeps what it was asked.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace kakeya::test {

class ListeningServer {
 public:
  explicit ListeningServer(const std::string& path) {
    listener_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    ::listen(listener_, 16);
    thread_ = std::thread([this] { serve(); });
  }
  ~ListeningServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  ListeningServer(const ListeningServer&) = delete;
  ListeningServer& operator=(const ListeningServer&) = delete;

  // Waits for a question; the text of its last message.
  std::string question(std::size_t number) {
    std::unique_lock lock(mutex_);
    const bool came =
        arrived_.wait_for(lock, std::chrono::seconds(30), [&] { return asked_.size() > number; });
    EXPECT_TRUE(came) << "question " << number << " did not come";
    return came ? asked_[number] : "";
  }
  std::size_t questions() {
    const std::lock_guard lock(mutex_);
    return asked_.size();
  }
  // Answers are held back until the lock is let go of.
  std::unique_lock<std::mutex> hold_answers() { return std::unique_lock(answering_); }

 private:
  void serve() {
    for (int client = 0; (client = ::accept(listener_, nullptr, nullptr)) >= 0; ::close(client)) {
      const std::string answer = answer_to(request(client));
      for (std::size_t sent = 0; sent < answer.size();) {
        const ssize_t wrote =
            ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (wrote <= 0) break;
        sent += static_cast<std::size_t>(wrote);
      }
    }
  }

  // The body; of a request without one nothing.
  static std::string request(int client) {
    std::string text;
    std::size_t body = std::string::npos;
    std::size_t size = 0;
    while (body == std::string::npos || text.size() < body + size) {
      char block[65536];
      const ssize_t got = ::recv(client, block, sizeof(block), 0);
      if (got <= 0) break;
      text.append(block, static_cast<std::size_t>(got));
      const std::size_t end = text.find("\r\n\r\n");
      if (body != std::string::npos || end == std::string::npos) continue;
      body = end + 4;
      const std::string name = "Content-Length: ";
      const std::size_t length = text.find(name);
      if (length < end) size = std::stoul(text.substr(length + name.size()));
    }
    return body == std::string::npos ? "" : text.substr(body);
  }

  std::string answer_to(const std::string& body) {
    const std::string head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: ";
    if (body.empty()) return head + "application/json\r\n\r\n{\"data\": [{\"id\": \"fake\"}]}";
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(nlohmann::json::parse(body)["messages"].back()["content"]);
    }
    arrived_.notify_all();
    const std::lock_guard held(answering_);
    return head +
           "text/event-stream\r\n\r\ndata: {\"choices\": [{\"delta\": {\"content\": \"ok\"}}]}\n\n";
  }

  int listener_ = -1;
  std::mutex mutex_;
  std::mutex answering_;
  std::condition_variable arrived_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

}  // namespace kakeya::test
