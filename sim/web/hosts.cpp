#include "web/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"

namespace kvcast::web {
namespace {

// Names of hosts do not depend on case (RFC 9110, section 4.2.3).
std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

bool has_port(const std::string& host) {
  const std::size_t colon = host.rfind(':');
  return colon != std::string::npos && host.find(']', colon) == std::string::npos;
}

}  // namespace

Hosts::Hosts(unsigned short port, const std::vector<std::string>& own, const std::vector<std::string>& allowed)
    : port_(fmt::format(":{}", port)) {
  for (const std::string& name : own) own_.insert(lower(name) + port_);
  for (const std::string& name : allowed) {
    allowed_.insert(lower(name));
    if (!has_port(name)) allowed_.insert(lower(name) + port_);
  }
}

std::string Hosts::why_foreign(const std::string& host, const std::string& origin, const std::string& reached) const {
  const std::string name = lower(host);
  const bool allowed = allowed_.contains(name);
  if (!allowed && !own_.contains(name) && name != reached + port_) {
    return fmt::format("Host {} is not this server; `kvcast serve --allow-host` adds names", quote(host));
  }
  const std::string from = lower(origin);
  // Behind a proxy the page may have come encrypted.
  if (from.empty() || from == "http://" + name || (allowed && from == "https://" + name)) return "";
  return "requests from other pages are rejected";
}

}  // namespace kvcast::web
