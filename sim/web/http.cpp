// Boost.Beast over coroutines: one thread for the network, a pool for the handler. All state of a connection belongs to
// the network's thread; the handler's calls are posted to it.
#include "web/http.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

#include "base/cancel.hpp"
#include "base/error.hpp"
#include "web/exchange.hpp"
#include "web/hosts.hpp"

namespace kvcast::web {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using net::awaitable;
using net::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr const char* kJson = "application/json";

// The text may quote what a client sent, whatever its bytes.
std::string error_body(const std::string& what) {
  return nlohmann::json{{"error", what}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// The type and subtype of a media type, whose case does not matter (RFC 9110, section 8.3.1).
std::string media_type(beast::string_view field) {
  std::string type(field.substr(0, std::min(field.find(';'), field.size())));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  for (char& c : type) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return type;
}

template <typename Body>
void set_headers(http::response<Body>& response, const std::string& type) {
  response.set(http::field::content_type, type);
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  response.set("X-Frame-Options", "DENY");
  response.set("Referrer-Policy", "no-referrer");
  response.set("Content-Security-Policy",
               "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
               "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  response.keep_alive(false);
}

}  // namespace

class Server::Impl {
 public:
  Impl(const Address& address, const HttpLimits& limits, std::map<std::string, TypedBody> documents, Handler handler)
      : limits_(limits),
        documents_(std::move(documents)),
        handler_(std::move(handler)),
        acceptor_(network_),
        workers_(static_cast<std::size_t>(limits.answers)) {
    listen(address);
  }

  std::string url() const { return fmt::format("http://{}/", name_of(shown_host_)); }

  void run() {
    net::co_spawn(network_, accept(), net::detached);
    network_.run();
    workers_.join();
  }

  void stop() {
    net::post(network_, [this] { shut(); });
  }

 private:
  using Connection = std::shared_ptr<beast::tcp_stream>;

  void listen(const Address& address) {
    boost::system::error_code error;
    const auto ip = net::ip::make_address(address.host, error);
    if (error) throw UserError(fmt::format("--host {}: not an address; known: 127.0.0.1, ::1, 0.0.0.0", address.host));
    const tcp::endpoint endpoint(ip, address.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
    if (error)
      throw UserError(fmt::format("cannot listen on {} port {}: {}", address.host, address.port, error.message()));
    shown_host_ = ip.is_v6() ? "[" + ip.to_string() + "]" : ip.to_string();
    // A server that listens on all addresses does not know its names, only the one that each client has reached.
    hosts_.emplace(acceptor_.local_endpoint().port(), std::vector<std::string>{shown_host_, "localhost", "127.0.0.1"},
                   address.allowed_hosts);
  }

  std::string name_of(const std::string& host) const {
    return fmt::format("{}:{}", host, acceptor_.local_endpoint().port());
  }

  void shut() {
    if (std::exchange(stopping_, true)) return;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    for (const auto& exchange : running_) exchange->stop.request_stop(), exchange->wake.cancel();
    for (const Connection& connection : open_) connection->socket().close(ignored);
  }

  awaitable<void> accept() {
    for (;;) {
      boost::system::error_code error;
      tcp::socket socket = co_await acceptor_.async_accept(net::redirect_error(net::use_awaitable, error));
      if (stopping_) co_return;
      if (error) {
        // Out of file descriptors, for example: some become free once connections have ended.
        net::steady_timer pause(network_, std::chrono::milliseconds(50));
        co_await pause.async_wait(net::redirect_error(net::use_awaitable, error));
        continue;
      }
      auto connection = std::make_shared<beast::tcp_stream>(std::move(socket));
      net::co_spawn(network_, serve(std::move(connection)), net::detached);
    }
  }

  // Serves one request. A network failure ends the connection, and nothing else.
  awaitable<void> serve(Connection connection) {
    ++connections_;
    open_.insert(connection);
    try {
      if (!stopping_) co_await serve_one(connection);
    } catch (const boost::system::system_error&) {
    } catch (const std::exception& failure) {
      fmt::print(stderr, "kvcast: a connection failed: {}\n", failure.what());
    }
    boost::system::error_code ignored;
    connection->socket().close(ignored);  // ends pending operations on it
    open_.erase(connection);
    --connections_;
  }

  awaitable<void> serve_one(Connection connection) {
    if (connections_ > limits_.connections && !drop_slowest()) {
      connection->expires_after(std::chrono::seconds(1));
      co_return co_await send(connection, 503, error_body("too many connections"));
    }
    beast::flat_buffer buffer;
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<std::uint32_t>(limits_.header_bytes));
    parser.body_limit(limits_.body_bytes);
    connection->expires_after(limits_.reading);
    boost::system::error_code error;
    reading_.push_back(connection);
    co_await http::async_read(*connection, buffer, parser, net::redirect_error(net::use_awaitable, error));
    std::erase(reading_, connection);
    if (stopping_) co_return;  // what is begun now would not be stopped
    if (error == http::error::body_limit) {
      co_return co_await send(connection, 413,
                              error_body(fmt::format("a request has at most {} bytes", limits_.body_bytes)));
    }
    if (error == http::error::header_limit)
      co_return co_await send(connection, 431, error_body("the header is too long"));
    const bool gone = error == http::error::end_of_stream || error == http::error::partial_message;
    if (gone || error == beast::error::timeout) co_return;
    if (error) co_return co_await send(connection, 400, error_body("not a request: " + error.message()));
    const auto& message = parser.get();
    if (message.count(http::field::host) > 1) co_return co_await send(connection, 400, error_body("two Host fields"));
    if (message.count(http::field::transfer_encoding) > 0 && message.count(http::field::content_length) > 0) {
      co_return co_await send(connection, 400, error_body("both Content-Length and Transfer-Encoding"));
    }
    const std::string why = hosts_->why_foreign(std::string(message[http::field::host]),
                                                std::string(message[http::field::origin]), reached(*connection));
    if (!why.empty()) co_return co_await send(connection, 403, error_body(why));
    co_await answer(connection, message);
  }

  // Makes room for a new connection: closes the one that has been sending its request for the longest time. Clients
  // that are slow on purpose cannot keep others out.
  bool drop_slowest() {
    if (reading_.empty()) return false;
    boost::system::error_code ignored;
    reading_.front()->socket().close(ignored);
    reading_.pop_front();
    return true;
  }

  // The address of this machine that the client has connected to, as a Host writes it.
  static std::string reached(const beast::tcp_stream& connection) {
    boost::system::error_code error;
    const net::ip::address ip = connection.socket().local_endpoint(error).address();
    if (!ip.is_v6()) return ip.to_string();
    const net::ip::address_v6 v6 = ip.to_v6();
    if (v6.is_v4_mapped()) return net::ip::make_address_v4(net::ip::v4_mapped, v6).to_string();
    return "[" + v6.to_string() + "]";
  }

  awaitable<void> answer(Connection connection, const http::request<http::string_body>& message) {
    HttpRequest request;
    request.method = std::string(message.method_string());
    const std::string target(message.target());
    request.path = target.substr(0, target.find('?'));
    if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
    request.content_type = media_type(message[http::field::content_type]);
    request.body = message.body();
    const bool head = request.method == "HEAD";
    if (const auto found = documents_.find(request.path); found != documents_.end()) {
      if (request.method != "GET" && !head) co_return co_await send(connection, 405, error_body("GET only"));
      co_return co_await send(connection, 200, found->second.body, found->second.content_type, head);
    }
    if (request.method == "GET" || head) {
      co_return co_await send(connection, 404, error_body(fmt::format("nothing at {}", request.path)), kJson, head);
    }
    if (request.method != "POST") co_return co_await send(connection, 405, error_body("GET and POST only"));
    if (unfinished_ >= limits_.answers + limits_.waiting)
      co_return co_await send(connection, 503, error_body("too many requests at once; try again in a second"));
    co_await handle(connection, std::move(request));
  }

  awaitable<void> handle(Connection connection, HttpRequest request) {
    const auto exchange = std::make_shared<Exchange>(connection->get_executor());
    running_.insert(exchange);
    watch(connection, exchange);
    ++unfinished_;
    const auto end = Clock::now() + limits_.answering;
    net::post(workers_,
              [this, exchange, request = std::move(request), executor = net::any_io_executor(network_.get_executor())] {
                PostedReply reply(executor, exchange, limits_.unsent_bytes);
                try {
                  if (!exchange->stop.stop_requested()) handler_(request, reply);
                } catch (const Cancelled&) {  // nobody waits for an answer
                } catch (const std::exception& failure) {
                  fmt::print(stderr, "kvcast: a request failed: {}\n", failure.what());
                  reply.send(500, kJson, error_body("the server failed; its terminal says why"));
                }
                reply.end();
                --unfinished_;
              });
    try {
      co_await deliver(connection, exchange, end);
    } catch (const boost::system::system_error&) {  // the client has disconnected
    }
    exchange->stop.request_stop();
    running_.erase(exchange);
  }

  // Detects that the client has disconnected while its answer is still being computed. Bytes beyond its request are
  // dropped: they must not hide that it leaves.
  void watch(const Connection& connection, const std::shared_ptr<Exchange>& exchange) {
    connection->socket().async_wait(tcp::socket::wait_read,
                                    [this, connection, exchange](boost::system::error_code error) {
                                      if (exchange->ended) return;  // the end of the connection is read by close()
                                      std::array<char, 4096> bytes;
                                      if (!error) connection->socket().non_blocking(true, error);
                                      if (!error)
                                        exchange->dropped += connection->socket().receive(net::buffer(bytes), 0, error);
                                      if (error == net::error::would_block) error = {};
                                      if (!error && exchange->dropped <= limits_.header_bytes)
                                        return watch(connection, exchange);
                                      exchange->stop.request_stop();
                                      exchange->wake.cancel();
                                    });
  }

  // Sends the parts as they come. Ends when the handler does, or when nobody waits for more.
  awaitable<void> deliver(Connection connection, std::shared_ptr<Exchange> exchange, Clock::time_point end) {
    std::unique_ptr<http::response<http::empty_body>> head;
    for (;;) {
      while (exchange->parts.empty() && !exchange->ended && !exchange->stop.stop_requested() && Clock::now() < end) {
        boost::system::error_code woken;
        exchange->wake.expires_at(end);
        co_await exchange->wake.async_wait(net::redirect_error(net::use_awaitable, woken));
      }
      const bool over = exchange->stop.stop_requested() || Clock::now() >= end;
      if (exchange->parts.empty() && !exchange->ended && !over) continue;
      if (exchange->parts.empty() || over) break;
      if (!exchange->streamed)
        co_return co_await send(connection, exchange->status, exchange->parts.front(), exchange->content_type);
      std::string part = std::move(exchange->parts.front());
      exchange->parts.pop_front();
      exchange->unsent -= part.size();
      connection->expires_after(limits_.writing);
      if (!head) {
        head = std::make_unique<http::response<http::empty_body>>(http::status::ok, 11);
        set_headers(*head, exchange->content_type);
        head->chunked(true);
        http::response_serializer<http::empty_body> serializer(*head);
        co_await http::async_write_header(*connection, serializer, net::use_awaitable);
      }
      co_await net::async_write(*connection, http::make_chunk(net::buffer(part)), net::use_awaitable);
    }
    if (!head) {
      const bool late = Clock::now() >= end;
      co_return co_await send(connection, late ? 504 : 503, error_body(late ? "the answer took too long" : "stopped"));
    }
    // Without the last chunk a client can tell that an answer was cut off.
    if (exchange->ended && exchange->parts.empty()) {
      co_await net::async_write(*connection, http::make_chunk_last(), net::use_awaitable);
      co_await close(connection);
    }
  }

  awaitable<void> send(Connection connection, int status, std::string body, std::string type = kJson,
                       bool head_only = false) {
    http::response<http::string_body> response(static_cast<http::status>(status), 11);
    set_headers(response, type);
    if (status == 503) response.set(http::field::retry_after, "1");
    const std::size_t size = body.size();
    if (!head_only) response.body() = std::move(body);
    response.content_length(size);
    connection->expires_after(limits_.writing);
    http::response_serializer<http::string_body> serializer(response);
    if (head_only) {
      co_await http::async_write_header(*connection, serializer, net::use_awaitable);
    } else {
      co_await http::async_write(*connection, serializer, net::use_awaitable);
    }
    co_await close(connection);
  }

  // Drains for a while what the client still sends: a connection that is closed with bytes unread is reset, and the
  // client would lose the answer.
  awaitable<void> close(Connection connection) {
    boost::system::error_code error;
    connection->socket().shutdown(tcp::socket::shutdown_send, error);
    connection->expires_after(connections_ > limits_.connections ? std::chrono::milliseconds(500) : limits_.reading);
    std::array<char, 65536> bytes;
    for (std::size_t read = 0; !error && read < limits_.drained_bytes;) {
      read += co_await connection->async_read_some(net::buffer(bytes), net::redirect_error(net::use_awaitable, error));
    }
  }

  HttpLimits limits_;
  std::map<std::string, TypedBody> documents_;
  Handler handler_;
  net::io_context network_{1};
  tcp::acceptor acceptor_;
  net::thread_pool workers_;
  std::string shown_host_;
  std::optional<Hosts> hosts_;
  bool stopping_ = false;
  int connections_ = 0;
  // calls of the handler that wait or run, including those whose clients have disconnected
  std::atomic<int> unfinished_{0};
  std::set<Connection> open_;
  std::deque<Connection> reading_;  // whose requests have not arrived, in order of their beginning
  std::set<std::shared_ptr<Exchange>> running_;
};

Server::Server(const Address& address, const HttpLimits& limits, std::map<std::string, TypedBody> documents,
               Handler handler)
    : impl_(std::make_unique<Impl>(address, limits, std::move(documents), std::move(handler))) {}
Server::~Server() = default;
std::string Server::url() const { return impl_->url(); }
void Server::run() { impl_->run(); }
void Server::stop() { impl_->stop(); }

}  // namespace kvcast::web
