// Fitted numbers as the YAML of a profile.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/hardware.hpp"

namespace kvcast::calibrate {

// The text in YAML's double quotes.
std::string yaml_text(std::string_view text);

// Decimals with which a percentage that exceeds its limit is written, so that both are not the same text: 1 or more.
int decimals_apart(double fraction, double limit);

// Gives the numbers under these keys ("gpu.floor_gemm") the origin `fitted`, this uncertainty and this source, and
// rounds them to the three digits that are written. The ends of a curve are rounded outwards, so that the measured
// sizes lie within.
void mark_fitted(config::Hardware& hardware, std::span<const std::string_view> keys, double uncertainty,
                 const std::string& source);

// `  key: {value: ..., origin: ..., ...}` or the lines of a curve, for each of the keys, without the name of their
// section; keys of a nested section ("gpu.attention_mha.attention_row") are grouped below its name.
std::string yaml_of(config::Hardware& hardware, std::span<const std::string_view> keys);

// The same for all keys that begin with the prefix ("link.").
std::string yaml_of(config::Hardware& hardware, std::string_view prefix);

// `gpu:`, `link:` and `host:` of a profile, with this title of the host.
std::string machine_yaml(config::Hardware& hardware, std::string_view host_title);

std::string yaml_of(const config::KernelRange& range);                   // `  range: {...}`
std::string yaml_of(const config::AttentionCorrection& correction);      // `  attention_correction:` and its lists
std::string yaml_of(std::span<const config::Calibration> calibrations);  // `calibration:` and its list

}  // namespace kvcast::calibrate
