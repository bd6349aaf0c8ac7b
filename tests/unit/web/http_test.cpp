// The server with well-behaved, misbehaving and disconnecting clients. Limits are small, so that each one is reached.
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "web/http.hpp"

namespace kvcast::tests {

using kvcast::web::HttpLimits;
using kvcast::web::HttpRequest;
using kvcast::web::Reply;
using kvcast::web::Server;
using namespace std::chrono_literals;

namespace {

// A client that writes and reads bytes; `read` ends when the server closes the connection.
class Client {
 public:
  explicit Client(const std::string& url) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    REQUIRE(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  Client(const Client&) = delete;
  ~Client() { close(); }

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void write(const std::string& text) { (void)::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Everything that the server sends, or everything up to the text if one is given.
  std::string read(const std::string& until = "") {
    std::string text;
    char bytes[4096];
    while (until.empty() || text.find(until) == std::string::npos) {
      const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
      if (n <= 0) break;
      text.append(bytes, static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  int socket_;
};

// A server that runs for the length of a test.
class Running {
 public:
  explicit Running(kvcast::web::Handler handler, HttpLimits limits = {})
      : server_({"127.0.0.1", 0}, limits, {{"/", {"text/html", "the page"}}}, std::move(handler)),
        thread_([this] { server_.run(); }) {}
  ~Running() { server_.stop(); }

  std::string url() const {
    const std::string url = server_.url();
    return url.substr(0, url.size() - 1);
  }
  std::string host() const { return url().substr(7); }
  void stop() { server_.stop(); }

  std::string ask(const std::string& request) const {
    Client client(url());
    client.write(request);
    return client.read();
  }
  std::string head(const std::string& line, const std::string& more = "") const {
    return line + " HTTP/1.1\r\nHost: " + host() + "\r\n" + more + "\r\n";
  }
  std::string post(const std::string& body) const {
    return head("POST /api/x",
                "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n") +
           body;
  }

 private:
  Server server_;
  std::jthread thread_;
};

void echo(const HttpRequest& request, Reply& reply) {
  reply.send(200, "text/plain", request.path + "|" + request.body);
}

bool is(const std::string& answer, int status) {
  INFO(answer);
  return answer.starts_with("HTTP/1.1 " + std::to_string(status) + " ");
}

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::sleep_for(1ms);
}

}  // namespace

TEST_CASE("documents and handled requests are answered, with headers that keep other pages out") {
  const Running server(echo);
  const std::string page = server.ask(server.head("GET /"));
  CHECK(is(page, 200));
  CHECK(page.ends_with("the page"));
  CHECK(page.find("Content-Security-Policy: default-src 'none'") != std::string::npos);
  CHECK(page.find("Access-Control-Allow-Origin") == std::string::npos);
  CHECK(server.ask(server.post("ab")).ends_with("/api/x|ab"));
  const std::string head = server.ask(server.head("HEAD /"));
  CHECK(head.find("Content-Length: 8") != std::string::npos);
  CHECK(head.ends_with("\r\n\r\n"));
}

TEST_CASE("foreign, unknown and malformed requests are rejected") {
  HttpLimits limits;
  limits.body_bytes = 64, limits.header_bytes = 512;
  const Running server(echo, limits);
  CHECK(is(server.ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403));
  CHECK(is(server.ask("GET / HTTP/1.1\r\n\r\n"), 403));
  CHECK(is(server.ask(server.head("GET /", "Origin: http://evil.example\r\n")), 403));
  CHECK(is(server.ask(server.head("GET /", "Origin: " + server.url() + "\r\n")), 200));
  CHECK(is(server.ask(server.head("GET /none")), 404));
  CHECK(is(server.ask(server.head("POST /", "Content-Length: 0\r\n")), 405));
  CHECK(is(server.ask(server.head("DELETE /api/x")), 405));
  CHECK(is(server.ask(server.post(std::string(65, 'x'))), 413));
  CHECK(is(server.ask(server.head("GET /", "X-Long: " + std::string(600, 'x') + "\r\n")), 431));
  CHECK_FALSE(is(server.ask("\x01\x02 garbage\r\n\r\n"), 200));
  CHECK(is(server.ask(server.head("GET /")), 200));  // and the server still answers
}

TEST_CASE("lines are sent as they are produced") {
  std::promise<void> first_was_read;
  const Running server([&](const HttpRequest&, Reply& reply) {
    reply.line("1");
    first_was_read.get_future().wait();
    reply.line("2");
  });
  Client client(server.url());
  client.write(server.post(""));
  const std::string begun = client.read("1\n");
  CHECK(begun.find("Content-Type: application/x-ndjson") != std::string::npos);
  CHECK(begun.find("2\n") == std::string::npos);
  first_was_read.set_value();
  CHECK(client.read().ends_with("2\n\r\n0\r\n\r\n"));  // the last chunk marks the answer as complete
}

TEST_CASE("a client's work stops when the client disconnects") {
  std::atomic<bool> begun{false}, stopped{false};
  const Running server([&](const HttpRequest&, Reply& reply) {
    begun = true;
    while (!reply.stop().stop_requested()) std::this_thread::sleep_for(1ms);
    stopped = true;
  });
  Client client(server.url());
  client.write(server.post(""));
  wait_for(begun);
  client.close();
  wait_for(stopped);
  CHECK(stopped);
}

TEST_CASE("slow clients are dropped, and others are served meanwhile") {
  HttpLimits limits;
  limits.reading = 200ms;
  const Running server(echo, limits);
  Client slow(server.url());
  slow.write("GET / HTT");
  CHECK(is(server.ask(server.head("GET /")), 200));
  CHECK(slow.read().empty());
}

TEST_CASE("excess requests are rejected, and the first ones are answered") {
  HttpLimits limits;
  limits.answers = 1, limits.waiting = 1;
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<bool> begun{false};
  const Running server(
      [&](const HttpRequest&, Reply& reply) {
        begun = true;
        gone.wait();
        reply.send(200, "text/plain", "done");
      },
      limits);
  Client first(server.url()), second(server.url());
  first.write(server.post(""));
  wait_for(begun);
  second.write(server.post(""));
  // The second one waits once a third one is rejected.
  std::string third;
  while (!third.starts_with("HTTP/1.1 503")) {
    Client client(server.url());
    client.write(server.post(""));
    third = client.read();
  }
  CHECK(third.find("Retry-After: 1") != std::string::npos);
  CHECK(is(server.ask(server.head("GET /")), 200));
  go.set_value();
  CHECK(first.read().ends_with("done"));
  CHECK(second.read().ends_with("done"));
}

TEST_CASE("an answer that takes too long is ended, before or after its first line") {
  HttpLimits limits;
  limits.answering = 200ms;
  const auto endless = [](Reply& reply) {
    while (!reply.stop().stop_requested()) std::this_thread::sleep_for(1ms);
  };
  const Running silent([&](const HttpRequest&, Reply& reply) { endless(reply); }, limits);
  CHECK(is(silent.ask(silent.post("")), 504));
  const Running talking([&](const HttpRequest&, Reply& reply) { reply.line("1"), endless(reply); }, limits);
  const std::string cut = talking.ask(talking.post(""));
  CHECK(cut.find("1\n") != std::string::npos);
  CHECK_FALSE(cut.ends_with("0\r\n\r\n"));
}

TEST_CASE("a failing handler is answered with an error, and the server continues") {
  const Running server([](const HttpRequest& request, Reply&) { throw std::runtime_error("broken " + request.body); });
  const std::string failed = server.ask(server.post("x"));
  CHECK(is(failed, 500));
  CHECK(failed.find("broken x") == std::string::npos);  // for the server's own terminal
  CHECK(is(server.ask(server.head("GET /")), 200));
}

TEST_CASE("stopping the server ends running work") {
  std::atomic<bool> begun{false};
  Running server([&](const HttpRequest&, Reply& reply) {
    begun = true;
    while (!reply.stop().stop_requested()) std::this_thread::sleep_for(1ms);
  });
  Client client(server.url()), idle(server.url());
  client.write(server.post(""));
  wait_for(begun);
  server.stop();
  CHECK(idle.read().empty());
}  // joined here

TEST_CASE("an unusable address is named") {
  CHECK_THROWS_WITH(Server({"nowhere", 0}, {}, {}, {}), Catch::Contains("nowhere"));
  const Running server(echo);
  const auto port = static_cast<unsigned short>(std::stoi(server.url().substr(server.url().rfind(':') + 1)));
  CHECK_THROWS_WITH(Server({"127.0.0.1", port}, {}, {}, {}), Catch::Contains("cannot listen"));
}

TEST_CASE("a client that leaves is noticed although it has sent more than its request") {
  std::atomic<bool> begun{false}, stopped{false};
  const Running server([&](const HttpRequest&, Reply& reply) {
    begun = true;
    while (!reply.stop().stop_requested()) std::this_thread::sleep_for(1ms);
    stopped = true;
  });
  Client client(server.url());
  client.write(server.post("") + "GET / HTTP/1.1\r\n");
  wait_for(begun);
  client.write("more");
  client.close();
  wait_for(stopped);
  CHECK(stopped);
}

TEST_CASE("a client that floods its connection while it waits is dropped") {
  std::atomic<bool> begun{false}, stopped{false};
  HttpLimits limits;
  limits.header_bytes = 4096;
  const Running server(
      [&](const HttpRequest&, Reply& reply) {
        begun = true;
        while (!reply.stop().stop_requested()) std::this_thread::sleep_for(1ms);
        stopped = true;
      },
      limits);
  Client client(server.url());
  client.write(server.post(""));
  wait_for(begun);
  for (int i = 0; i < 200 && !stopped; ++i) client.write(std::string(1000, 'x'));
  wait_for(stopped);
  CHECK(stopped);
}

TEST_CASE("slow clients cannot keep others out") {
  HttpLimits limits;
  limits.connections = 3;
  const Running server(echo, limits);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<Client>(server.url()));
    slow.back()->write("GET / HTT");
  }
  for (int i = 0; i < 10; ++i) CHECK(is(server.ask(server.head("GET /")), 200));
  CHECK(slow.front()->read().empty());
}

TEST_CASE("requests that two readers could understand differently are rejected") {
  const Running server(echo);
  const std::string host = "Host: " + server.host() + "\r\n";
  CHECK(is(server.ask("GET / HTTP/1.1\r\n" + host + host + "\r\n"), 400));
  CHECK(is(server.ask("GET / HTTP/1.1\r\n" + host + "Host: evil.example\r\n\r\n"), 400));
  const std::string post = "POST /api/x HTTP/1.1\r\n" + host;
  CHECK(is(server.ask(post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil"), 400));
  CHECK(is(server.ask(post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), 400));
  CHECK(is(server.ask(post + "Content-Length: 3\r\nX: a\nb\r\n\r\nabc"), 400));
  // Bytes that follow a request on its connection are no second one.
  const std::string two = server.ask(server.post("ab") + server.post("cd"));
  CHECK(two.find("/api/x|ab") != std::string::npos);
  CHECK(two.find("/api/x|cd") == std::string::npos);
}

TEST_CASE("a media type in upper case is the same one") {
  const Running server(
      [](const HttpRequest& request, Reply& reply) { reply.send(200, "text/plain", request.content_type); });
  const auto type_of = [&](const std::string& type) {
    const std::string answer =
        server.ask(server.head("POST /x", "Content-Type: " + type + "\r\nContent-Length: 0\r\n"));
    return answer.substr(answer.rfind("\r\n") + 2);
  };
  CHECK(type_of("Application/JSON; charset=UTF-8") == "application/json");
  CHECK(type_of("TEXT/YAML ;x=y") == "text/yaml");
}

TEST_CASE("the answer to a body that is far too large is not lost") {
  const Running server(echo);
  const std::string answer = server.ask(server.post(std::string(10 << 20, 'x')));
  CHECK(is(answer, 413));
  CHECK(answer.find("a request has at most 262144 bytes") != std::string::npos);
}

TEST_CASE("whatever bytes a request has, its answer is text, and the server goes on") {
  const Running server(echo);
  for (const std::string path : {"/\xff\xfe", "/\xc3", "/%ff"}) {
    const std::string answer = server.ask(server.head("GET " + path));
    CHECK((is(answer, 404) || is(answer, 400)));
  }
  CHECK(is(server.ask("GET / HTTP/1.1\r\nHost: \xff\r\n\r\n"), 403));
  CHECK(is(server.ask(server.head("GET /")), 200));
}

TEST_CASE("a server on all addresses answers to the one that was reached and to names that are allowed") {
  Server server({"0.0.0.0", 0, {"Planner.example", "proxy.example:443"}}, {}, {{"/", {"text/html", "the page"}}}, echo);
  const std::jthread thread([&server] { server.run(); });
  const std::string port =
      server.url().substr(server.url().rfind(':'), server.url().size() - server.url().rfind(':') - 1);
  const auto status = [&](const std::string& host, const std::string& origin = "") {
    Client client("http://127.0.0.1" + port);
    client.write("GET / HTTP/1.1\r\nHost: " + host + "\r\n" + (origin.empty() ? "" : "Origin: " + origin + "\r\n") +
                 "\r\n");
    return std::stoi(client.read().substr(9, 3));
  };
  CHECK(status("127.0.0.1" + port) == 200);
  CHECK(status("LocalHost" + port) == 200);
  CHECK(status("planner.example") == 200);
  CHECK(status("planner.example" + port) == 200);
  CHECK(status("proxy.example:443", "https://proxy.example:443") == 200);
  CHECK(status("planner.example", "https://planner.example") == 200);
  CHECK(status("evil.example" + port) == 403);
  CHECK(status("127.0.0.1.evil.example" + port) == 403);
  CHECK(status("proxy.example") == 403);
  CHECK(status("10.0.0.1" + port) == 403);  // not the address that the client connected to
  CHECK(status("127.0.0.1") == 403);
  CHECK(status("127.0.0.1" + port, "https://127.0.0.1" + port) == 403);
  CHECK(status("planner.example", "http://evil.example") == 403);
  server.stop();
}

}  // namespace kvcast::tests
