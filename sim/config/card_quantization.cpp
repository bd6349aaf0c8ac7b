#include "config/card_quantization.hpp"

namespace kvcast::config {

std::string quantization_of(const Node& map) {
  const auto text = [](const Node* node) { return is_scalar(node) ? node->text() : std::string(); };
  for (const char* const path : {"config_groups.group_0.weights", "config_groups.group_0"}) {
    const Node* weights = find_below(map, path);
    if (weights != nullptr && weights->kind() == Node::Kind::kMap && is_scalar(weights->find("num_bits"))) {
      if (text(map.find("format")).starts_with("mxfp4")) return "mxfp4";  // as of other floats of four bits
      return text(weights->find("type")) + text(weights->find("num_bits"));
    }
  }
  if (text(map.find("load_in_4bit")) == "true") return "int4";
  if (text(map.find("load_in_8bit")) == "true") return "int8";
  for (const char* const bits : {"bits", "w_bit"}) {
    if (is_scalar(map.find(bits))) return "int" + text(map.find(bits));
  }
  const Node* algorithm = map.find("quant_algo");
  return text(is_scalar(algorithm) ? algorithm : map.find("quant_method"));
}

bool leaves(const Node& map, std::string_view part) {
  for (const char* const key : {"modules_to_not_convert", "ignore", "exclude_modules"}) {
    const Node* list = map.find(key);
    if (list == nullptr || list->kind() != Node::Kind::kList) continue;
    for (const Node& item : list->items()) {
      if (is_scalar(&item) && item.text().find(part) != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace kvcast::config
