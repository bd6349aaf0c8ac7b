// The names by which requests may address a server, so that a page of another site cannot reach it through a name of
// its own that resolves to this machine (DNS rebinding).
#pragma once

#include <set>
#include <string>
#include <vector>

namespace kvcast::web {

class Hosts {
 public:
  // `own`: the server's addresses and names ("127.0.0.1", "[::1]", "localhost"), valid with its port. `allowed`:
  // further ones of the user's, "planner.example" with or without this port, "planner.example:443" as it stands.
  Hosts(unsigned short port, const std::vector<std::string>& own, const std::vector<std::string>& allowed);

  // Explains why a request with this Host and this Origin (empty: none) comes neither from the server's own page nor
  // from a program of the user; empty if it does. `reached`: the address that the client connected to, which is a name
  // too.
  std::string why_foreign(const std::string& host, const std::string& origin, const std::string& reached) const;

 private:
  std::string port_;
  std::set<std::string> own_, allowed_;
};

}  // namespace kvcast::web
