// Published rows beside their simulation, as evidence.
#pragma once

#include <vector>

#include "accuracy/score.hpp"
#include "evidence/record.hpp"

namespace kvcast::accuracy {

// Of the predicted cells of a plan, with the first name that the catalogue has for a method. Prompts that came in
// blocks make a benchmark of their own ("longbench block"), as what a method loses then is another thing.
std::vector<evidence::Record> records_of(const Plan& plan, const Catalogue& catalogue);

}  // namespace kvcast::accuracy
