// A promise that files stay as they are for a while, so that work on many similar runs looks each of them up once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace kvcast::config {

struct Hardware;

// The results of the file lookups made so far.
struct FoundFiles {
  std::unordered_map<std::string, std::optional<std::string>> paths;  // by how a lookup searches and what for
  std::unordered_map<std::string, bool> shipped;                      // by file
  std::unordered_map<const void*, bool> unchanged;                    // by the loads that were compared
  // Machines with changed numbers, by the file that changes them and the text of the change.
  std::unordered_map<std::string, std::shared_ptr<const Hardware>> altered;
};

// While one lives, the files that find_config() and profiles go by are taken to be unchanged in its thread.
class SteadyFiles {
 public:
  SteadyFiles();
  ~SteadyFiles();
  SteadyFiles(const SteadyFiles&) = delete;
  SteadyFiles& operator=(const SteadyFiles&) = delete;

  // Returns the lookups of the calling thread, or null if no SteadyFiles lives in it.
  static FoundFiles* found();

 private:
  FoundFiles found_;
  FoundFiles* before_;
};

}  // namespace kvcast::config
