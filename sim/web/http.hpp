// A small HTTP/1.1 server for a page on this machine: fixed documents by path, and requests that a handler answers on
// threads of its own, whole or line by line.
//
// It is meant to be reachable by the user's own browser and by nothing else. It rejects requests whose Host is not one
// of its own names or whose Origin is another page's (hosts.hpp), limits the size of requests, the time that a client
// may take, and the number of connections and of concurrent requests, and closes every connection after its answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace kvcast::web {

struct HttpLimits {
  std::size_t header_bytes = 16 << 10, body_bytes = 256 << 10;
  std::size_t unsent_bytes = 64 << 20;           // buffered for a client that does not read
  std::size_t drained_bytes = 64 << 20;          // read and dropped after an answer, so that it is not lost
  std::chrono::milliseconds reading{10'000};     // from the first byte of a request to its last
  std::chrono::milliseconds writing{30'000};     // until the client takes a part of the answer
  std::chrono::milliseconds answering{600'000};  // for a whole answer
  int connections = 64;  // at a time; one more takes the place of the slowest sender, or gets 503
  int answers = 2;       // computed at a time
  int waiting = 16;      // requests that wait for their turn; further ones get 503
};

struct HttpRequest {
  std::string method, path;  // the path without its query
  std::string query;         // after the '?'
  std::string content_type;  // in lower case, without parameters: "application/json"
  std::string body;
};

// Called by the handler on its thread. Once the client has disconnected, calls do nothing and stop() is requested.
class Reply {
 public:
  virtual ~Reply() = default;
  // Sends the whole answer, unless lines have been sent.
  virtual void send(int status, std::string content_type, std::string body) = 0;
  // Sends one line of an answer that consists of lines of JSON (application/x-ndjson); the first call begins it.
  // Does nothing after a whole answer.
  virtual void line(std::string json) = 0;
  // Requested when the client has disconnected, the time for the answer is over, or the server stops.
  virtual std::stop_token stop() const = 0;
};

// Answers one request. An exception is answered with 500; what it says is for the server's terminal alone.
using Handler = std::function<void(const HttpRequest&, Reply&)>;

struct TypedBody {
  std::string content_type, body;
};

class Server {
 public:
  struct Address {
    std::string host = "127.0.0.1";               // an IPv4 or IPv6 address
    unsigned short port = 0;                      // 0: any free one
    std::vector<std::string> allowed_hosts = {};  // further names of this server (hosts.hpp)
  };
  // Listens immediately. Throws UserError if the address cannot be used.
  Server(const Address& address, const HttpLimits& limits, std::map<std::string, TypedBody> documents, Handler handler);
  ~Server();

  std::string url() const;  // "http://127.0.0.1:8080/"
  // Serves until it is stopped and all handlers have returned.
  void run();
  // Stops the server; may be called from any thread.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::web
