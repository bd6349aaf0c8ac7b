// Version of this program and the location of its data files.
#pragma once

#include <string>

namespace kvcast {

// "0.1.0".
const char* version();
// The file that holds this code: the executable, or the shared object that another program has loaded.
std::string code_file();

// The folder that contains configs/, reports/ and traces/, used for files that the working directory lacks: that of the
// thread's DataFolder, otherwise the environment variable KVCAST_DATA, otherwise the folder found relative to
// code_file(). Throws UserError if the variable names another folder, or if there is none.
const std::string& data_dir();

// While it lives, data_dir() is this folder in its thread, and in those that parallel_for starts from it. An empty name
// changes nothing. Throws UserError if the folder has no configs/models.
class DataFolder {
 public:
  explicit DataFolder(const std::string& folder);
  ~DataFolder();
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  // The folder of this thread; empty if it has none.
  static const std::string& current();

 private:
  std::string before_;
};

}  // namespace kvcast
