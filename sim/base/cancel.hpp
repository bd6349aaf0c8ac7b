// The request to stop work that takes long. Whoever starts the work owns a std::stop_source and passes a Cancel on to
// everything below, explicitly: to loops, layers of traces, simulations. Work looks at it several times a second.
#pragma once

#include <exception>
#include <stop_token>
#include <utility>

namespace kvcast {

// Thrown by work that was requested to stop. No failure: what it has handed over before is valid, the rest is missing.
class Cancelled final : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped on request"; }
};

// Copies refer to one request, which may be made and looked at from any thread. Without a token it is never made.
class Cancel {
 public:
  Cancel() = default;
  Cancel(std::stop_token token) : token_(std::move(token)) {}  // implicit: a token is all that it is

  bool requested() const noexcept { return token_.stop_requested(); }
  // Throws Cancelled once the stop is requested.
  void check() const {
    if (requested()) throw Cancelled();
  }
  const std::stop_token& token() const { return token_; }

 private:
  std::stop_token token_;
};

}  // namespace kvcast
