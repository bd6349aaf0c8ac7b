#include "config/price.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "config/find.hpp"
#include "config/run.hpp"

namespace kvcast::config {

std::optional<double> read_price(Section& run) {
  const Node node = run.node("price_per_hour"), hardware = run.node("hardware");
  constexpr double kMost = 1e9;
  if (node.kind() != Node::Kind::kMap) return read_number(node, "price_per_hour", 0, kMost);
  const Node& machine = machine_name(hardware);
  const std::string file = find_config("hardware", machine.text(), machine.where());
  std::optional<double> price;
  for (const auto& [name, value] : node.entries()) {
    const std::string priced = find_config("hardware", name, node.key_where(name));
    const double number = read_number(value, "price_per_hour", 0, kMost);
    if (priced != file) continue;
    if (price && *price != number) {
      throw UserError(node.key_where(name), fmt::format("price_per_hour: {} has another price under another name: "
                                                        "give one",
                                                        name));
    }
    price = number;
  }
  return price;
}

std::string unpriced_text(const Run& run) {
  if (run.price_per_hour || run.source.find("price_per_hour") == nullptr) return "";
  return fmt::format("price_per_hour has no price of {}: its results have no cost", run.hardware.name);
}

}  // namespace kvcast::config
