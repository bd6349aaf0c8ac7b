// The answer to one request on its way between two threads.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include <boost/asio.hpp>

#include "web/http.hpp"

namespace kvcast::web {

// A request's answer, passed from the handler's thread, which makes it, to the network's, which sends it.
struct Exchange {
  explicit Exchange(const boost::asio::any_io_executor& executor) : wake(executor) {}

  // All members except `stop` are used on the network's thread only.
  std::deque<std::string> parts;
  std::size_t unsent = 0, dropped = 0;  // bytes
  int status = 0;                       // 0: not begun
  std::string content_type;
  bool streamed = false, ended = false;
  boost::asio::steady_timer wake;
  std::stop_source stop;
};

// The handler's side of an exchange: posts each change to the network's thread.
class PostedReply final : public Reply {
 public:
  PostedReply(boost::asio::any_io_executor executor, std::shared_ptr<Exchange> exchange, std::size_t most_unsent)
      : executor_(std::move(executor)), exchange_(std::move(exchange)), most_unsent_(most_unsent) {}

  void send(int status, std::string content_type, std::string body) override {
    post([=, body = std::move(body), type = std::move(content_type)](Exchange& e) mutable {
      if (e.status != 0) return;
      e.status = status, e.content_type = std::move(type), e.ended = true;
      e.parts.push_back(std::move(body));
    });
  }

  void line(std::string json) override {
    post([=, most = most_unsent_, json = std::move(json)](Exchange& e) mutable {
      if (e.ended || e.stop.stop_requested()) return;
      if (e.status == 0) e.status = 200, e.content_type = "application/x-ndjson", e.streamed = true;
      json += '\n';
      e.unsent += json.size();
      e.parts.push_back(std::move(json));
      if (e.unsent > most) e.stop.request_stop();
    });
  }

  std::stop_token stop() const override { return exchange_->stop.get_token(); }

  void end() {
    post([](Exchange& e) { e.ended = true; });
  }

 private:
  template <typename Change>
  void post(Change change) {
    boost::asio::post(executor_, [exchange = exchange_, change = std::move(change)]() mutable {
      change(*exchange);
      exchange->wake.cancel();
    });
  }

  boost::asio::any_io_executor executor_;
  std::shared_ptr<Exchange> exchange_;
  std::size_t most_unsent_;
};

}  // namespace kvcast::web
