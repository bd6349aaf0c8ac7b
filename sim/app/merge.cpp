// kvcast merge DIR... -o DIR: joins the stores of a sweep's shards.
#include "store/merge.hpp"

#include <fmt/format.h>

#include <memory>

#include "app/commands.hpp"
#include "app/sweep.hpp"

namespace kvcast::app {
namespace {

struct MergeOptions {
  std::vector<std::string> dirs;
  std::string out;
};

int merge(const MergeOptions& options) {
  const store::Merged merged = store::merge(options.dirs, options.out);
  auto store = store::Store::open(options.out, store::Store::Open::kExisting);
  fmt::print(stderr, "{} rows in {} store{}, {} of them new in {}\n", merged.rows, options.dirs.size(),
             options.dirs.size() == 1 ? "" : "s", merged.added, store.path());
  const auto missing = static_cast<std::int64_t>(store.shown().size() - store.keys().size());
  if (missing > 0) fmt::print(stderr, "{} experiments of the sweep are in none of the stores\n", missing);
  const config::Node config = config::parse_yaml(store.metadata(store::kMetaConfig).value_or("{}"), store.path());
  SweepRows rows;
  return conclude(store, config, options.out, sweep_study({}), rows);
}

}  // namespace

void add_merge(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("merge", "join the stores of a sweep's shards (`sweep --shard i/n`)");
  auto options = std::make_shared<MergeOptions>();
  command->add_option("DIR", options->dirs, "folders with results.sqlite, in any order")->required();
  command->add_option("-o,--out", options->out, "folder of the joined store; an existing store is extended")
      ->required();
  command->callback([options, &result] { result = merge(*options); });
}

}  // namespace kvcast::app
