// Names of GPUs as drivers, makers and users write them.
#pragma once

#include <optional>
#include <string>

#include "config/yaml.hpp"

namespace kvcast::config {

// Returns a name without the parts that all GPUs share: "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1234)", a line of
// `nvidia-smi -L`, is "A100-SXM4-80GB".
std::string short_machine_name(const std::string& name);

// The machine that configs/cards/machines.yaml proposes for a GPU without a profile: a choice as read_hardware() takes
// it. Nothing for other names.
std::optional<Node> proposed_machine(const std::string& name);

// An answer to the name of a GPU without a profile: the nearest machine, or the reason; empty for unknown names.
std::string machine_advice(const std::string& name);

}  // namespace kvcast::config
