// Files and texts that a request may name and read: names of listed files, texts of its own.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "api/catalogue.hpp"
#include "api/kept_replays.hpp"
#include "base/build.hpp"
#include "support/temporary_directory.hpp"
#include "web/client_text.hpp"

namespace kvcast::tests {

using namespace web;

namespace {

namespace fs = std::filesystem;

TEST_CASE("a client reads errors of its own text and of shipped files, and of others only their names") {
  const TemporaryDirectory folder;
  const std::string secret = folder.path() + "/secret.yaml", link = folder.path() + "/link.yaml";
  std::ofstream(secret) << "hunter2\n";
  SourceLocation request{"request", 3, 5};
  request.from_request = true;
  const std::string shipped = data_dir() + "/configs/models/llama-3.1-8b.yaml";
  fs::create_symlink(shipped, link);
  CHECK(client_text(UserError("no location")) == "no location");
  CHECK(client_text(UserError(request, "unknown key \"x\"")) == "request:3:5: unknown key \"x\"");
  CHECK(client_text(UserError({shipped, 2, 1}, "why")) == shipped + ":2:1: why");
  const UserError quoting({secret, 1, 1}, "found \"hunter2\"");
  CHECK(client_text(quoting) == secret + " cannot be used; the server's terminal says why");
  CHECK(client_text(UserError({link, 1, 1}, "why")).find("why") > link.size());
  // A file of this name in the text of the request is no request.
  CHECK(client_text(UserError({"request", 1, 1}, "hunter2")).find("hunter2") == std::string::npos);
}

TEST_CASE("the catalogue of a server lists no links, and does not quote broken files") {
  const TemporaryDirectory folder;
  const fs::path before = fs::current_path();
  fs::create_directories(folder.path() + "/configs/hardware");
  std::ofstream(folder.path() + "/configs/hardware/broken.yaml") << "hunter2: 1\n";
  std::ofstream(folder.path() + "/outside.yaml") << "hunter2: 1\n";
  fs::create_symlink("../../outside.yaml", folder.path() + "/configs/hardware/linked.yaml");
  SourceLocation request{"request", 0, 0};
  request.from_request = true;
  fs::current_path(folder.path());
  const nlohmann::json served = api::catalogue_json(request, client_text), all = api::catalogue_json();
  fs::current_path(before);
  CHECK(served["left_out"].size() == 1);
  CHECK(all["left_out"].size() == 2);
  CHECK(served["machines"] == all["machines"]);
  CHECK(served["left_out"][0] == "configs/hardware/broken.yaml cannot be used; the server's terminal says why");
  CHECK(all["left_out"][0].get<std::string>().starts_with("configs/hardware/broken.yaml:1:1: "));
  CHECK(served.dump().find("hunter2") == std::string::npos);
}

TEST_CASE("kept replays are bounded by their bytes, and the last one is kept in any case") {
  api::RecentReplays replays(100'000);
  replay::ReplayResult large;
  large.layers.resize(1);
  large.layers[0].counts.resize(1000);  // of 72 bytes each
  for (const char* key : {"a", "b", "c"}) replays.put(key, large);
  CHECK_FALSE(replays.get("a"));
  CHECK_FALSE(replays.get("b"));
  CHECK(replays.get("c"));
  large.layers[0].counts.resize(100'000);
  replays.put("d", large);
  CHECK(replays.get("d"));
  CHECK_FALSE(replays.get("c"));
}

}  // namespace
}  // namespace kvcast::tests
