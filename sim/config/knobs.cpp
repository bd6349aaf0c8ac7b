// Every number of a machine as a list, and as the text that is the key of results.

#include "base/error.hpp"
#include "config/fields.hpp"
#include "config/text.hpp"

namespace kvcast::config {
namespace {

template <typename AKnob, typename Machine>
std::vector<AKnob> list_knobs(Machine& machine) {
  std::vector<AKnob> knobs;
  knobs.reserve(128);
  for_each_part(machine, [&](const char* prefix, auto& owner, auto values, auto curves) {
    for (const auto& f : values) {
      knobs.push_back(
          {std::string(prefix) + f.key, &(owner.*f.member), nullptr, Dimension::kNone, f.dimension, f.low, f.high});
    }
    for (const auto& f : curves) {
      knobs.push_back({std::string(prefix) + f.key, nullptr, &(owner.*f.member), f.x, f.y, f.low, f.high});
    }
  });
  return knobs;
}

template <typename Number>
void put_grounds(std::string& text, const Number& number) {
  text += origin_name(number.origin);
  text += ' ';
  put_bits(text, number.uncertainty);
  text += number.source;
  text += '\n';
}

}  // namespace

std::vector<Knob> knobs(Hardware& hardware) { return list_knobs<Knob>(hardware); }
std::vector<ConstKnob> knobs(const Hardware& hardware) { return list_knobs<ConstKnob>(hardware); }

Knob knob_of(Hardware& hardware, std::string_view key) {
  for (const Knob& knob : knobs(hardware)) {
    if (knob.key == key) return knob;
  }
  KVCAST_CHECK(!"a key of a number");
  return {};
}

std::string canonical(const Hardware& hardware) {
  std::string text;
  text.reserve(32768);
  text += hardware.title + '\n' + hardware.host.title + '\n' + canonical(hardware.gpu.range);
  text += static_cast<char>('0' + static_cast<int>(hardware.fit));
  if (hardware.gpu.attention_correction) text += canonical(*hardware.gpu.attention_correction);
  for_each_part(hardware, [&](const char* prefix, const auto& owner, auto values, auto curves) {
    text += prefix;
    for (const auto& field : values) {
      const Value& value = owner.*field.member;
      put_bits(text, value.value);
      put_grounds(text, value);
    }
    for (const auto& field : curves) {
      const Curve& curve = owner.*field.member;
      for (std::size_t i = 0; i < curve.x.size(); ++i) {
        put_bits(text, curve.x[i]);
        put_bits(text, curve.y[i]);
      }
      put_grounds(text, curve);
    }
  });
  return text;
}

}  // namespace kvcast::config
