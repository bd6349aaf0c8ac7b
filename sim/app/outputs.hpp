// Files that a command writes, compared with those that it reads.
#pragma once

#include <span>
#include <string>

namespace kvcast::app {

// Throws UserError if the output is one of the inputs, under any path: writing it would destroy what was read. `option`
// names the output on the command line (-o, --timeline). An empty output is none, and an input that is no file (a name
// in configs, an empty path) is never the output.
void refuse_overwritten(const std::string& output, const char* option, std::span<const std::string> inputs);

// Throws UserError if two outputs, each with its option, are one file under any paths. An empty one is none.
void refuse_same(const std::string& output, const char* option, const std::string& other, const char* other_option);

// Throws UserError at `--out` if the file exists: it was written by a person, or by an earlier command.
void refuse_existing(const std::string& out);

// Throws UserError if a file is named twice, under any paths: its rows would count twice.
void refuse_repeated(std::span<const std::string> inputs);

}  // namespace kvcast::app
