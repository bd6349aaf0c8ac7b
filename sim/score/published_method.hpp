// Policies under the names and papers that published scores have.
#pragma once

#include <set>
#include <string>

#include "config/run.hpp"
#include "score/catalogue.hpp"
#include "score/task_score.hpp"

namespace kvcast::score {

// A policy as published tables name it: the first entry of configs/accuracy/methods.yaml with its settings except for
// the budget and the parameters that the entry lists as any_value, and that entry's paper; otherwise the name of an
// entry with the same policy, or the policy's own name, and no paper.
struct PublishedMethod {
  std::string paper, method;         // `method` as a bare name
  const MethodSpec* spec = nullptr;  // the entry with the policy's settings; null if there is none
};
PublishedMethod published_method(const Catalogue& catalogue, const config::PolicyChoice& policy,
                                 const std::string& benchmark);

// Papers that have rows of the method on the benchmark (a bare name) under the policy's settings: the rows of the
// published method's entry, and those of papers without an entry of their own, such as a user's measurements.
std::set<std::string> papers_with_settings(const ScoreModel& model, const PublishedMethod& published,
                                           const config::PolicyChoice& policy, const std::string& benchmark);

}  // namespace kvcast::score
