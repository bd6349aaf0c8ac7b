// The reader of profiles. A profile is merged over the files that it includes, key by key, before anything is read, so
// that every number keeps the location at which it is written.

#include "config/hardware.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "config/fields.hpp"
#include "config/find.hpp"
#include "config/include.hpp"
#include "config/physics.hpp"
#include "config/points.hpp"
#include "config/section.hpp"

namespace kvcast::config {
namespace {

// Reads {points: [[x, y], ...], origin: literature, uncertainty: 20 %, source: "..."}.
template <typename Owner>
Curve read_curve(Section& section, const CurveField<Owner>& field) {
  Section entry = section.section(field.key, field.key);
  Curve curve;
  read_points(entry.node("points"), field.key, {field.x, field.y, field.low, field.high}, curve);
  curve.origin =
      origin_from_name(entry.choice("origin", {"exact", "measured", "fitted", "literature", "datasheet", "assumed"}));
  curve.uncertainty = entry.uncertainty();
  curve.source = entry.text("source");
  entry.finish();
  return curve;
}

template <typename Owner>
void add_keys(std::vector<std::string_view>& keys, std::span<const ValueField<Owner>> values,
              std::span<const CurveField<Owner>> curves) {
  for (const auto& field : values) {
    if (field.fallback < 0) keys.emplace_back(field.key);
  }
  for (const auto& field : curves) keys.emplace_back(field.key);
}

template <typename Owner>
void read_fields(Section& section, Owner& owner, std::span<const ValueField<Owner>> values,
                 std::span<const CurveField<Owner>> curves) {
  constexpr double kUnknown = 0.5;  // relative half-width of numbers that a profile does not state
  std::vector<std::string_view> keys;
  add_keys(keys, values, curves);
  section.require(keys);
  for (const auto& field : values) {
    Value& value = owner.*field.member;
    if (field.fallback >= 0 && !section.has(field.key)) {
      value = {field.fallback, Origin::kAssumed, kUnknown, fmt::format("{} is not stated by the profile", field.key)};
    } else {
      value = section.value(field.key, field.dimension, field.low, field.high);
    }
  }
  for (const auto& field : curves) owner.*field.member = read_curve(section, field);
}

// Throws at the number that is rejected. Messages of a file name a number as its section does. depth: levels of the key
// above the map.
void refuse(const std::optional<Contradiction>& found, const Node& map, std::size_t depth) {
  if (!found) return;
  std::string_view key = found->key;
  const std::string_view name = key.substr(key.rfind('.') + 1);
  for (std::size_t i = 0; i < depth; ++i) key.remove_prefix(key.find('.') + 1);
  throw UserError(where_is(map, key), fmt::format("{}: {}", name, found->why));
}

void read_gpu(Section& section, Gpu& gpu) {
  std::vector<std::string_view> keys;
  add_keys<Gpu>(keys, kGpuValues, kGpuCurves);
  add_keys<AttentionKernel>(keys, kAttentionValues, kAttentionCurves);
  section.require(keys);
  read_fields<Gpu>(section, gpu, kGpuValues, kGpuCurves);
  read_fields<AttentionKernel>(section, gpu.attention, kAttentionValues, kAttentionCurves);
  if (section.has("attention_mha")) {
    Section mha = section.section("attention_mha", "attention_mha");
    read_fields<AttentionKernel>(mha, gpu.attention_mha.emplace(), kAttentionValues, kAttentionCurves);
    mha.finish();
  }
  if (section.has("attention_correction")) {
    Section correction = section.section("attention_correction", "attention_correction");
    gpu.attention_correction = read_attention_correction(correction);
  }
  gpu.range = read_range(section);
  section.finish();
}

Host read_host(const Node& file, std::string name, Sources& sources) {
  const Node map = with_includes(file, "hosts/common", {}, sources);
  Section section(map, "host");
  section.has("include");  // a known key, for messages
  Host host;
  host.name = std::move(name);
  host.title = section.text("title");
  read_fields<Host>(section, host, kHostValues, kHostCurves);
  host.calibrations = read_calibrations(section);
  section.finish();
  refuse(contradiction(host), map, 1);
  return host;
}

// `host: NAME` is a file under configs/hosts, `host: {...}` is the host itself.
Host host_of(Section& section, Sources& sources) {
  const Node node = section.node("host");
  if (node.kind() == Node::Kind::kMap) return read_host(node, "inline", sources);
  const std::string path = find_config("hosts", read_text(node, "host"), node.where());
  return read_host(sources.load(path), stem_of(path), sources);
}

Hardware read_profile(const std::string& path, Sources& sources) {
  const Node file = with_includes(sources.load(path), "hardware/common", {"gpu", "link"}, sources);
  const std::optional<LikeMachine> like = read_variation(file, sources);
  const Node& whole = like ? like->whole : file;
  Section section(whole, "hardware profile");
  for (const char* const merged : {"like", "include"}) section.has(merged);  // known keys, for messages
  Hardware hardware;
  hardware.name = stem_of(path);
  hardware.title = section.text("title");
  hardware.aliases = section.texts("aliases", {});
  refuse_hidden_aliases("hardware", path, hardware.aliases, section.where("aliases"));
  Section gpu = section.section("gpu", "gpu");
  read_gpu(gpu, hardware.gpu);
  refuse(contradiction(hardware.gpu), whole, 0);
  Section link = section.section("link", "link");
  read_fields<Link>(link, hardware.link, kLinkValues, kLinkCurves);
  link.finish();
  refuse(contradiction(hardware.link), whole, 0);
  hardware.host = host_of(section, sources);
  hardware.calibrations = read_calibrations(section);
  section.finish();
  hardware.fit = !hardware.calibrations.empty()    ? TimesOrigin::kFitted
                 : like && like->same_architecture ? TimesOrigin::kDerived
                                                   : TimesOrigin::kNone;
  if (!like) return hardware;
  hardware.derived_from = like->name;
  for (const Knob& knob : knobs(hardware)) {
    if (!knob.key.starts_with("host.") && find_below(like->own, knob.key) == nullptr)
      assume(knob, like->name, like->uncertainty);
  }
  return hardware;
}

// A cache of profiles by path: each is read once and copied as long as its files are unchanged.
template <typename Profile>
class Profiles {
 public:
  template <typename Reader>
  Profile read(const std::string& path, const Reader& reader) {
    const std::shared_ptr<const Read> known = find(path);
    if (known && known->sources.unchanged()) return known->profile;
    const auto fresh = std::make_shared<Read>();
    fresh->profile = reader(path, fresh->sources);
    const std::lock_guard lock(mutex_);
    by_path_[path] = fresh;
    return fresh->profile;
  }

 private:
  struct Read {
    Profile profile;
    Sources sources;
  };
  std::shared_ptr<const Read> find(const std::string& path) {
    const std::lock_guard lock(mutex_);
    const auto known = by_path_.find(path);
    return known == by_path_.end() ? nullptr : known->second;
  }
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Read>> by_path_;
};

}  // namespace

void assume(const Knob& knob, const std::string& like, double uncertainty) {
  const auto take_over = [&](auto& number) {
    if (number.origin == Origin::kExact) return;
    number.source = fmt::format("as {}: {}", like, number.source);
    number.origin = worse(number.origin, Origin::kAssumed);
    number.uncertainty = std::max(number.uncertainty, uncertainty);
  };
  knob.value != nullptr ? take_over(*knob.value) : take_over(*knob.curve);
}

std::string fit_text(const Hardware& hardware) {
  if (hardware.fit == TimesOrigin::kFitted) return "fitted";
  return hardware.derived_from.empty() ? "no fit: published numbers alone"
                                       : "no fit: derived from " + hardware.derived_from;
}

Host read_host(const std::string& path) {
  static Profiles<Host> profiles;
  return profiles.read(path, [](const std::string& file, Sources& sources) {
    return read_host(sources.load(file), stem_of(file), sources);
  });
}

Hardware read_hardware(const std::string& path) {
  static Profiles<Hardware> profiles;
  return profiles.read(path, read_profile);
}

}  // namespace kvcast::config
