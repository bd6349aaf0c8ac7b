// Takes two passes: the first compares, so that stores that do not belong together leave the result unchanged.
#include "store/merge.hpp"

#include <map>
#include <utility>

#include "base/error.hpp"
#include "store/keep.hpp"
#include "store/row.hpp"
#include "store/store.hpp"

namespace kvcast::store {
namespace {

// A hash of the parts of a row that equal experiments share, whenever and wherever they ran.
std::string lasting_hash(const Stored& stored) {
  result::Result result = stored.result;
  result.wall_s = result.experiment.engine_wall_s = 0;
  result.experiment.timeline.clear();
  Row row = row_of(result);
  row["ordinal"] = stored.ordinal;
  row["code_version"] = stored.code_version;
  return checksum_of(row);
}

// Checks that all stores are of one sweep: it has one plan, whose keys follow from its file, its inputs and the
// program.
class OneSweep {
 public:
  void check(const Store& store) {
    const SourceLocation where{store.path(), 0, 0};
    const auto config = store.metadata(kMetaConfig);
    if (!config) throw UserError(where, "a store without a sweep; `kvcast sweep CONFIG -o DIR` makes one with it");
    std::vector<std::string> keys = store.shown();
    if (first_.empty()) {
      first_ = store.path(), config_ = *config, keys_ = std::move(keys);
      return;
    }
    if (*config != config_) {
      throw UserError(where, fmt::format("a store of another sweep than {}; merge joins the shards of one", first_));
    }
    if (keys != keys_) {
      throw UserError(where, fmt::format("the same sweep as {}, by another version of kvcast or of the files that its "
                                         "experiments read; run both with the same ones",
                                         first_));
    }
  }

 private:
  std::string first_, config_;
  std::vector<std::string> keys_;
};

class OneResult {
 public:
  // Returns the number of rows.
  std::int64_t check(const Store& store) {
    std::int64_t rows = 0;
    store.for_each([&](const Stored& stored) {
      ++rows;
      if (stored.result.status == result::Status::kFailed) return;  // any result replaces it
      const auto [at, fresh] = seen_.try_emplace(stored.result.key, lasting_hash(stored), store.path());
      if (fresh || at->second.first == lasting_hash(stored)) return;
      throw UserError({store.path(), 0, 0}, fmt::format("row {} has another result than in {}; nothing is merged",
                                                        stored.result.key, at->second.second));
    });
    return rows;
  }

 private:
  std::map<std::string, std::pair<std::string, std::string>> seen_;  // by key: hash, path of its store
};

// Copies the description of the sweep. It comes before any row, so that a merge that ends early can be resumed.
void add_sweep(Store& target, const Store& source) {
  for (const char* name : {kMetaConfig, kMetaName, kMetaDescription, kMetaPlanned}) {
    if (const auto value = source.metadata(name)) target.set_metadata(name, *value);
  }
  target.show(source.shown());
  for (const auto& [name, numbers] : source.machines()) target.set_machine(name, numbers);
}

// Adds rows and replays; returns the number of rows that the target did not have.
std::int64_t add_rows(Store& target, const Store& source) {
  std::int64_t added = 0;
  source.for_each([&](const Stored& stored) {
    const bool failed = stored.result.status == result::Status::kFailed;
    if (failed && target.get(stored.result.key)) return;
    added += target.put(stored) ? 1 : 0;
  });
  for (const std::string& key : source.replay_keys()) {
    if (const auto bytes = source.get_replay(key)) target.put_replay(key, *bytes);
  }
  return added;
}

}  // namespace

Merged merge(const std::vector<std::string>& dirs, const std::string& out) {
  std::vector<Store> sources;
  for (const std::string& dir : dirs) sources.push_back(Store::open(dir, Store::Open::kExisting));
  OneSweep sweep;
  OneResult results;
  Merged merged;
  for (const Store& source : sources) {
    sweep.check(source);
    merged.rows += results.check(source);
  }
  if (Store::exists(out)) {
    const Store there = Store::open(out, Store::Open::kExisting);
    const bool is_empty = !there.metadata(kMetaConfig) && there.keys().empty();  // a merge ended before it began
    if (!is_empty) sweep.check(there), results.check(there);
  }
  Store target = Store::open(out, Store::Open::kCreate);
  // The stores have been read once without an error: what fails now is the disk.
  const auto add_all = [&] {
    for (const Store& source : sources) add_sweep(target, source);
    for (const Store& source : sources) merged.added += add_rows(target, source);
  };
  keep(add_all, "Rows merged so far are");
  return merged;
}

}  // namespace kvcast::store
