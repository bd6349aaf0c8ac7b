#include "config/left_out.hpp"

#include "config/find.hpp"
#include "config/section.hpp"

namespace kvcast::config {
namespace {

OutsideErrors read_left_out(const std::string& path) {
  Section section(load_yaml(path), "intervals");
  OutsideErrors out;
  const auto read = [&](const char* key) { return section.value(key, Dimension::kNone, 0, 10); };
  out.kernels = read("kernels");
  out.derived_kernels = read("derived_kernels"), out.other_kernels = read("other_kernels");
  out.fused = read("fused"), out.eager = read("eager"), out.eager_prompts = read("eager_prompts"),
  out.policies = read("policies");
  out.eager_policies = read("eager_policies");
  out.eager_costs = section.value("eager_costs", Dimension::kNone, 0, 1);
  section.finish();
  return out;
}

}  // namespace

OutsideErrors left_out() { return read_left_out(find_config("validation", "intervals", {})); }

}  // namespace kvcast::config
