// The files from which an object was made, so that it is rebuilt only after one of them has changed.
#pragma once

#include <string>
#include <vector>

#include "config/yaml.hpp"

namespace kvcast::config {

class Sources {
 public:
  // load_yaml(path).
  Node load(const std::string& path);
  // load_yaml(find_config(folder, name, asked_at)).
  Node load(const std::string& folder, const std::string& name, const SourceLocation& asked_at);

  // Returns whether all loads would find the same files with the same content again.
  bool unchanged() const;

 private:
  bool is_unchanged() const;

  struct Loaded {
    std::string folder, name;  // as requested; empty for a path
    SourceLocation asked_at;
    std::string path;
    Node root;
  };
  std::vector<Loaded> loaded_;
};

}  // namespace kvcast::config
