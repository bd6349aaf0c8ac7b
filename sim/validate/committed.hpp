// Results of the measuring programs that belong to the project: configs/validation/gpu/PROFILE/FILE.
#pragma once

#include <string>
#include <vector>

namespace kvcast::validate {

struct Measured {
  std::string results;  // path of the file
  std::string profile;  // a machine (configs/hardware) that was calibrated where the results were measured
  bool own = false;     // belongs to the project, so that its profiles and cost model were made knowing it
};

// Returns `given` if it names results, as the project's own if their content is that of one of its files. Otherwise
// returns all of the project's files of that name, by profile, or none if the folder is missing. Throws UserError
// naming the suite if results are given without a profile.
std::vector<Measured> given_or_committed(const std::string& suite, const Measured& given, const std::string& file);

}  // namespace kvcast::validate
