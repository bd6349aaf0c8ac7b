// Compares a policy's selections with those of its definition: the tokens resident after the prompt and those attended
// to at each step.
#pragma once

#include <catch2/catch.hpp>

#include "naive.hpp"
#include "support/memory_trace.hpp"
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

// Runs body(layer) for three shapes with `window` prompt queries and three seeds.
template <typename Body>
void for_random_layers(int window, std::uint64_t first_seed, const Body& body) {
  for (const TraceShape& shape :
       {TraceShape{.kv_heads = 3, .group = 1, .prompt = 61, .steps = 9, .window = window},
        {.kv_heads = 2, .group = 4, .prompt = 70, .steps = 12, .window = window},
        {.kv_heads = 1, .group = 2, .head_dim = 16, .prompt = 17, .steps = 25, .window = window}}) {
    for (std::uint64_t seed = first_seed; seed < first_seed + 3; ++seed) {
      CAPTURE(shape.prompt, shape.group, seed);
      const MemoryTrace trace = random_trace(shape, seed);
      body(*trace.load(0, 1));
    }
  }
}

}  // namespace kvcast::tests
