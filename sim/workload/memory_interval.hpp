// How far a run's memory may be off. Weights, caches and indexes follow from shapes and selections and are exact;
// activations and attention scores are an estimate (lower/dense.hpp), and so is how much memory there is.
#pragma once

#include <nlohmann/json.hpp>

#include "workload/experiment.hpp"

namespace kvcast::workload {

// Source of a Shift: 1 more activations and attention scores, -1 fewer.
inline constexpr const char* kTemporaries = "activations";
// The factor on their bytes.
double temporaries_when_off(const hardware::Shift& shift);
// Whether an owner's bytes are among them.
bool is_temporary(const std::string& owner);

// Intervals and origins of a record's peaks: exact, unless a twentieth or more is activations and attention scores, as
// in decoding they hardly are.
void add_memory_intervals(nlohmann::json& record, const Experiment& experiment);

// {"source", "longer": {"memory": {"hbm_peak_bytes", "decode_hbm_peak_bytes"}}, "shorter": {..}}: the peaks with more
// activations and with fewer, in the form of shifted_json (record.hpp). However few there are: in a difference of two
// peaks they may be much.
nlohmann::json shifted_memory(const Experiment& experiment);

}  // namespace kvcast::workload
