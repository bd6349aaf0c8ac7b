// The schemes of the pipeline. To add one: a file that defines such a function, and a line in list.cpp.
#pragma once

#include <vector>

#include "harness/bench.hpp"

namespace kvcast::kernels {

Bench pipeline_full(const Machine& machine);
Bench pipeline_quest(const Machine& machine);
Bench pipeline_rocketkv(const Machine& machine);
Bench pipeline_arkvale(const Machine& machine);
Bench pipeline_freekv(const Machine& machine);
Bench pipeline_shadowkv(const Machine& machine);
Bench pipeline_ctkvr(const Machine& machine);

std::vector<Bench> pipeline_benches(const Machine& machine);

}  // namespace kvcast::kernels
