// Results of the measuring programs that belong to the project: configs/validation/gpu/PROFILE/FILE.
#pragma once

#include <string>
#include <vector>

namespace kvcast::validate {

struct Committed {
  std::string results;  // path of the file
  std::string profile;  // name under configs/hardware of the machine on which they were measured
};

// All files of that name, by profile; none if the folder is missing.
std::vector<Committed> committed(const std::string& file);

}  // namespace kvcast::validate
