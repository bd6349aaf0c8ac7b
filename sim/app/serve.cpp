// kvcast serve: the planner's page and its JSON API, on this machine.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stop_token>
#include <thread>

#include "api/catalogue.hpp"
#include "api/session.hpp"
#include "app/commands.hpp"
#include "app/interrupt.hpp"
#include "app/scores.hpp"
#include "base/parallel.hpp"
#include "config/section.hpp"
#include "study/scoring.hpp"
#include "web/client_text.hpp"
#include "web/http.hpp"
#include "web/page.hpp"
#include "web/planner.hpp"

namespace kvcast::app {
namespace {

struct ServeOptions {
  web::Server::Address address{"127.0.0.1", 8642};
  std::string memory;  // of a request; empty: see memory_of_request
  int jobs = 0;
  bool no_ahead = false;
};

// Requests that are answered together may take half of the memory together.
double memory_of_request(const ServeOptions& options, const web::HttpLimits& limits) {
  if (!options.memory.empty()) {
    return config::read_quantity(config::Node::scalar(options.memory, {"--memory", 1, 1}), "--memory",
                                 Dimension::kBytes, 1e6, 1e15);
  }
  constexpr double kMost = 4e9;
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return std::min(kMost, there / 2 / limits.answers);
}

// Gives memory back that one large request has taken, so that other programs have it. What small ones have taken stays
// for the next: to give it back and ask for it again costs a tenth of their time.
void give_memory_back() {
  constexpr std::size_t kKept = std::size_t{128} << 20;
  if (::mallinfo2().fordblks > kKept) ::malloc_trim(0);
}

// Makes the replays of common settings, with what processor time nobody else wants. Those of earlier starts are kept.
void replay_ahead(api::Session& session, const std::string& file, const std::stop_token& stop) {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);  // on Linux, of this thread and those it starts
  try {
    const config::Node sweeps = config::load_yaml(file);
    for (const config::Node& sweep : sweeps.items()) {
      session.sweep(sweep, {.cancel = stop, .timeline = {}, .nominal = true});
      give_memory_back();
    }
  } catch (const Cancelled&) {
  } catch (const std::exception& error) {
    fmt::print(stderr, "kvcast: no further replays are made ahead: {}\n", error.what());
  }
}

int serve_page(const ServeOptions& options) {
  const web::HttpLimits limits;
  api::SessionOptions session_options;
  study::StudyOptions& study = session_options.study;
  study.threads = options.jobs > 0 ? options.jobs : hardware_threads();
  study.scores = study::Scores::kAtHand;
  std::string ignored;
  study.score_replays = study::score_cache_file(ignored);
  session_options.replay_folder = replay_folder(study);
  // Work that takes longer would not be answered in time.
  const double seconds = study.threads * std::chrono::duration<double>(limits.answering).count();
  session_options.budget = {memory_of_request(options, limits), seconds};
  api::Session session(std::move(session_options));
  const report::Assets assets = report::load_assets({});
  SourceLocation request;
  request.from_request = true;
  const nlohmann::json catalogue = api::catalogue_json(request, [](const UserError& error) {
    const std::string text = web::client_text(error);
    if (text != error.what()) fmt::print(stderr, "kvcast: {}; the page leaves it out\n", error.what());
    return text;
  });
  web::Server server(options.address, limits,
                     {{"/", {"text/html; charset=utf-8", web::planner_page(assets)}},
                      {"/api/catalogue", {"application/json", catalogue.dump()}}},
                     [&session](const web::HttpRequest& asked, web::Reply& reply) {
                       web::answer(session, asked, reply);
                       give_memory_back();
                     });
  const Stop stop("");
  const std::stop_callback on_signal(stop.cancel().token(), [&server] { server.stop(); });
  fmt::print("{}\n", server.url());
  std::fflush(stdout);
  fmt::print(stderr, "The planner's page is at this address until Ctrl-C.\n");
  std::jthread ahead;
  if (!options.no_ahead) {
    ahead = std::jthread([&](const std::stop_token& stopped) { replay_ahead(session, assets.planner.ahead, stopped); });
  }
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
  command
      ->add_option("--allow-host", options->address.allowed_hosts,
                   "a further name of this server, NAME or NAME:PORT, such as that of a proxy; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--memory", options->memory,
                      "the most memory that a request may take, by an estimate made before it is begun (default: 4 GB, "
                      "or a quarter of this machine's)");
  command->add_flag("--no-ahead", options->no_ahead,
                    "make no replays of common settings in the background before they are asked for");
  command->add_option("-j,--jobs", options->jobs, "threads for each request (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->callback([options, &result] { result = serve_page(*options); });
}

}  // namespace kvcast::app
