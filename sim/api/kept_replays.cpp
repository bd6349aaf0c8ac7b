#include "api/kept_replays.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/failure.hpp"

namespace kvcast::api {
namespace {

constexpr std::uintmax_t kMostStored = std::uintmax_t{2} << 30;  // bytes of the file, beyond which nothing is added

}  // namespace

KeptReplays::KeptReplays(std::size_t memory, const std::string& folder) : recent_(memory) {
  if (folder.empty()) return;
  try {
    stored_ = store::Store::open(folder, store::Store::Open::kCreate);
  } catch (const UserError&) {  // results are the same without it
  } catch (const OutputError&) {
  }
}

std::optional<replay::ReplayResult> KeptReplays::get(const std::string& key) {
  if (auto found = recent_.get(key)) return found;
  if (!stored_) return {};
  try {
    const auto text = stored_->get_replay(key);
    if (!text) return {};
    auto replayed = replay::replay_from_json(nlohmann::json::parse(*text));
    recent_.put(key, replayed);
    return replayed;
  } catch (const UserError&) {
  } catch (const OutputError&) {
  }
  return {};
}

void KeptReplays::put(const std::string& key, const replay::ReplayResult& replayed) {
  recent_.put(key, replayed);
  if (!stored_ || !writable_) return;
  try {
    std::error_code failure;
    const auto size = std::filesystem::file_size(stored_->path(), failure);
    writable_ = !failure && size < kMostStored;
    if (writable_) stored_->put_replay(key, replay::to_json(replayed).dump());
  } catch (const UserError&) {
    writable_ = false;
  } catch (const OutputError&) {
    writable_ = false;
  }
}

CountedReplays::CountedReplays(study::ReplayCache& kept, const study::Study& plan, Advance advance)
    : kept_(kept), advance_(std::move(advance)) {
  std::set<std::string> keys;
  for (const study::Task& task : plan.tasks()) {
    for (const auto& trace : task.prepared.traces) keys.insert(trace.replay);
  }
  wanted_ = keys.size();
}

std::optional<replay::ReplayResult> CountedReplays::get(const std::string& key) {
  auto found = kept_.get(key);
  if (found) {
    ++there_;
  } else {
    advance_(std::min<std::size_t>(there_, wanted_), wanted_);
  }
  return found;
}

void CountedReplays::put(const std::string& key, const replay::ReplayResult& replayed) {
  kept_.put(key, replayed);
  advance_(std::min(++there_, wanted_), wanted_);
}

}  // namespace kvcast::api
