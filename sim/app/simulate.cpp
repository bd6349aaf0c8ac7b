// kvcast simulate GRAPH.json: the engine alone.
#include "engine/simulate.hpp"

#include <fmt/format.h>

#include <memory>

#include "app/commands.hpp"
#include "base/whole_file.hpp"

namespace kvcast::app {

void add_simulate(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("simulate", "run the event engine alone on a graph of timed operations (JSON)");
  auto path = std::make_shared<std::string>();
  command->add_option("GRAPH.json", *path, "resources, lanes and ops")->required();
  command->callback([path, &result] {
    fmt::print("{}\n", engine::simulate_json(read_whole_file(*path, "the graph"), *path));
    result = 0;
  });
}

}  // namespace kvcast::app
