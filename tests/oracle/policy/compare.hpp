// Compares a policy's selections with those of its definition: tokens resident after the prompt, and attended at each
// step.
#pragma once

#include <catch2/catch.hpp>

#include "naive.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

inline void compare(const Selected& got, const naive::Steps& wanted) {
  const auto lists = [](const policy::LayerSelection& selection) {
    naive::Heads out;
    for (const auto& head : selection.heads) out.push_back(head.attended);
    return out;
  };
  CHECK(lists(got.resident) == wanted.resident);
  REQUIRE(got.steps.size() == wanted.attended.size());
  for (std::size_t t = 0; t < got.steps.size(); ++t) {
    CAPTURE(t);
    CHECK(lists(got.steps[t]) == wanted.attended[t]);
  }
}

}  // namespace kvcast::tests
