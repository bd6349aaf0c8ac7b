// Lookup of files under configs/.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvcast::config {

// Finds configs/<folder>/<name>.yaml from the working directory, then from the data folder, and the other way round
// for a name that a file of the data folder contains; otherwise the file there whose `title:` or `aliases:` contain the
// name, or whose own name it is, ignoring case, '-', '_' and spaces if there is no exact match. A name with '/' or
// ending in .yaml is a path relative to these, and of a model also an owner and a name, as ids of Hugging Face are.
// Throws UserError with the list of existing names, and for an alias that several files claim. Files that cannot be
// read are passed over, and named by the error.
//
// A name that a request contains (asked_at.from_request) is never a path, and a file answers to it only if it lies in
// configs/<folder> itself, not behind a link: whoever sends requests cannot choose what is read. Messages then leave
// out what is wrong with other files.
std::string find_config(const std::string& folder, const std::string& name, const SourceLocation& asked_at);

// The same without aliases and without the error; returns nothing for a name (not a path) that has no file.
std::optional<std::string> find_config_if_any(const std::string& folder, const std::string& name,
                                              const SourceLocation& asked_at);

// The errors of files that a search passed over, since the name searched for may belong to others.
class Unread {
 public:
  // Returns what `read` does, or false if it throws UserError.
  template <class Read>
  bool attempt(const Read& read) {
    try {
      return read();
    } catch (const UserError& error) {
      errors_.insert(error.what());
      return false;
    }
  }
  // " (not read: FILE: why; ...)", or nothing; nothing for a request, which must not learn what is in files.
  std::string text(const SourceLocation& asked_at) const;

 private:
  std::set<std::string> errors_;
};

// Throws UserError at `where` for an alias of `file` that is the name of another file of the folder, which would be
// read in its place.
void refuse_hidden_aliases(const std::string& folder, const std::string& file, const std::vector<std::string>& aliases,
                           const SourceLocation& where);

// The error for a name that no file has, with the names there are, or else the folders that were searched. `why`
// follows the first part of the message.
UserError not_found(const std::string& folder, const std::string& name, const SourceLocation& asked_at,
                    const std::vector<std::string>& known, const std::string& why);

// Returns the path of configs/<below> from the working directory, then from the data folder; nothing if there is none.
std::optional<std::string> find_file(const std::string& below);

// Returns whether the file root/below is a regular one that is reached without links below `root`.
bool is_own_file(const std::string& root, const std::string& below);
// Throws UserError: a request named a file.
[[noreturn]] void refuse_request_for_file(const SourceLocation& asked_at, const std::vector<std::string>& known = {});

// Returns whether a name is a path: it contains '/' or ends in .yaml.
bool is_path(const std::string& name);
// Returns the name of a file without folder and extension.
std::string stem_of(const std::string& path);

// The names of the YAML files of configs/<folder>, in order, and the files; those that a request may name if `asked_at`
// is in one.
std::vector<std::string> names_in(const std::string& folder, const SourceLocation& asked_at = {});
std::vector<std::string> config_files(const std::string& folder, const SourceLocation& asked_at = {});

}  // namespace kvcast::config
