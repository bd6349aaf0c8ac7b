// Results of the measuring programs that belong to the project: configs/validation/gpu/PROFILE/FILE.
#pragma once

#include <string>
#include <vector>

namespace kvcast::validate {

struct Measured {
  std::string results;   // path of the file
  std::string profile;   // a machine (configs/hardware) that was calibrated where the results were measured
  bool in_view = false;  // numbers that no fit gives were chosen with these results in view
};

// Returns `given` if it names results, in view if their content is that of a project's file that was.
// Otherwise returns all of the project's files of that name, by profile, or none if the folder is missing. Throws
// UserError naming the suite if results are given without a profile.
std::vector<Measured> given_or_committed(const std::string& suite, const Measured& given, const std::string& file);

}  // namespace kvcast::validate
