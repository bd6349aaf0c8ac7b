// The set is shared by the whole program, since a signal ends all of it.
#include "base/temporary.hpp"

#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

namespace kvcast {
namespace {

struct Alive {
  std::mutex mutex;
  std::multiset<std::string> paths;
};

Alive& alive() {
  static Alive all;
  return all;
}

void remove(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

Temporary::Temporary(std::string path) : path_(std::move(path)) {
  const std::lock_guard lock(alive().mutex);
  alive().paths.insert(path_);
}

Temporary::~Temporary() {
  remove(path_);
  const std::lock_guard lock(alive().mutex);
  alive().paths.erase(alive().paths.find(path_));
}

void remove_temporaries() {
  const std::lock_guard lock(alive().mutex);
  for (const std::string& path : alive().paths) remove(path);
}

}  // namespace kvcast
