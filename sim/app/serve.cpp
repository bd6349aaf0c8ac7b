// kvcast serve: the planner's page and its JSON API, on this machine.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "app/commands.hpp"
#include "base/parallel.hpp"
#include "serve/catalogue.hpp"
#include "serve/http.hpp"
#include "serve/page.hpp"
#include "serve/planner.hpp"

namespace kvcast::app {
namespace {

struct ServeOptions {
  serve::Server::Address address{"127.0.0.1", 8642};
  int jobs = 0;
};

int serve_page(const ServeOptions& options) {
  const serve::Limits limits;
  const report::Assets assets = report::load_assets({});
  serve::Planner planner(options.jobs > 0 ? options.jobs : hardware_threads(), assets);
  const nlohmann::json catalogue = serve::catalogue_json();
  for (const nlohmann::json& error : catalogue["left_out"]) {
    fmt::print(stderr, "kvcast: {}; the page leaves this machine out\n", error.get<std::string>());
  }
  serve::Server server(
      options.address, limits,
      {{"/", {"text/html; charset=utf-8", serve::planner_page(assets)}},
       {"/api/catalogue", {"application/json", catalogue.dump()}}},
      [&planner](const serve::Request& request, serve::Reply& reply) { planner.answer(request, reply); });
  server.stop_on_signals();
  fmt::print("{}\n", server.url());
  std::fflush(stdout);
  fmt::print(stderr, "The planner's page is at this address until Ctrl-C.\n");
  server.run();
  fmt::print(stderr, "Stopped.\n");
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("serve", "serve the planner, a page for a browser on this machine");
  auto options = std::make_shared<ServeOptions>();
  command->add_option("--port", options->address.port, "the port; 0 selects a free one")->capture_default_str();
  command
      ->add_option("--host", options->address.host,
                   "the address to listen on; with 0.0.0.0 other machines can open the page")
      ->capture_default_str();
  command->add_option("-j,--jobs", options->jobs, "threads for each request (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->callback([options, &result] { result = serve_page(*options); });
}

}  // namespace kvcast::app
