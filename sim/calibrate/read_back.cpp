#include "calibrate/read_back.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/error.hpp"
#include "base/temporary.hpp"
#include "base/whole_file.hpp"
#include "calibrate/write.hpp"
#include "config/hardware.hpp"

namespace kvcast::calibrate {
namespace {

std::string make_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "kvcast-calibrate-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) throw UserError("no temporary folder can be made");
  return path;
}

// The complaint of a reader without its location, in a file that the user cannot look at. A number of an entry that
// fills its line is called `value` there; the line begins with its key.
std::string without_place(const std::string& complaint, const std::string& folder) {
  if (!complaint.starts_with(folder)) return complaint;
  const std::size_t colon = complaint.find(':', folder.size());
  const std::string what = complaint.substr(complaint.find(": ", colon) + 2);
  if (!what.starts_with("value: ")) return what;
  std::istringstream text(read_whole_file(complaint.substr(0, colon), "the profile"));
  std::string line;
  for (int left = std::atoi(complaint.c_str() + colon + 1); left > 0; --left) std::getline(text, line);
  const std::size_t key = line.find_first_not_of(' ');
  return line.substr(key, line.find(':') - key) + what.substr(what.find(':'));
}

// Calls `read` with a folder that is gone afterwards.
template <typename Read>
void in_folder(const Read& read) {
  const Temporary folder(make_folder());
  try {
    read(folder.path() + "/");
  } catch (const UserError& error) {
    throw UserError("nothing is written, because a profile with the fitted numbers cannot be read: " +
                    without_place(error.what(), folder.path() + "/"));
  }
}

}  // namespace

void check_host(const std::string& yaml) {
  in_folder([&](const std::string& folder) {
    write_whole_file(folder + "host.yaml", yaml);
    config::read_host(folder + "host.yaml");
  });
}

void check_profile(const std::string& yaml) {
  in_folder([&](const std::string& folder) {
    write_whole_file(folder + "profile.yaml", yaml);
    config::read_hardware(folder + "profile.yaml");
  });
}

void check_part(const std::string& yaml, config::Hardware machine) {
  // The sum of two rates may not survive that all are rounded, and no part has a link.
  config::Link& link = machine.link;
  link.both_bandwidth.value = std::max(link.h2d_bandwidth.value, link.d2h_bandwidth.value);
  in_folder([&](const std::string& folder) {
    write_whole_file(folder + "part.yaml", yaml);
    write_whole_file(folder + "machine.yaml", machine_yaml(machine, "host"));
    write_whole_file(folder + "profile.yaml",
                     fmt::format("title: part\ninclude: [{}, {}]\n", yaml_text(folder + "part.yaml"),
                                 yaml_text(folder + "machine.yaml")));
    config::read_hardware(folder + "profile.yaml");
  });
}

}  // namespace kvcast::calibrate
