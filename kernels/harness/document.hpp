// The results file: one environment, one row for each case. Schema in kernels/README.md.
#pragma once

#include <set>
#include <string>

#include "harness/json.hpp"

namespace kvcast::kernels {

inline constexpr const char* kSchema = "kvcast-kernels/1";

class Document {
 public:
  // Reads an existing file, so that measuring continues where it stopped. Throws UsageError if the file is not such a
  // document, or was measured on another machine, device or driver than the environment says.
  Document(const std::string& path, Json environment);

  // Returns whether there is a row of that benchmark, those axes and that mode already.
  bool has(const std::string& key) const;
  static std::string key_of(const Json& row);
  void add(Json row);
  const Json& json() const { return json_; }

  // Written to a temporary file and renamed: a reader, or the next run, never sees half a file. Without a path, does
  // nothing.
  void save() const;

 private:
  std::string path_;
  Json json_;
  std::set<std::string> keys_;  // of the rows
};

// One line for each row: bench, mode, axes as "a=1;b=2", times, work and rates.
std::string to_csv(const Json& document);

}  // namespace kvcast::kernels
