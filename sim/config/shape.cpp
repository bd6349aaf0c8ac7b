#include "config/shape.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace kvcast::config {
namespace {

struct Recording {
  Shapes shapes;
  bool has_all = false;
};
thread_local Recording* recording = nullptr;

}  // namespace

Shapes shapes_of(const std::function<void()>& reader) {
  Recording mine;
  Recording* const outer = std::exchange(recording, &mine);
  for (const bool all : {false, true}) {
    mine.has_all = all;
    try {
      reader();
    } catch (const UserError&) {  // expected for two keys that exclude each other, or a text that names nothing
    }
  }
  recording = outer;
  return std::move(mine.shapes);
}

namespace shape {

bool is_recording() { return recording != nullptr; }

bool has_all() { return recording->has_all; }

void note(const std::string& title, KeyShape key) {
  std::vector<KeyShape>& keys = recording->shapes[title];
  key.required = key.required && !recording->has_all;  // some are requested only if another key is present
  const auto known = std::ranges::find_if(keys, [&](const KeyShape& k) { return k.key == key.key; });
  if (known == keys.end()) {
    keys.push_back(std::move(key));
  } else if (key.type == KeyShape::Type::kAny) {
    known->required = known->required || key.required;
    if (known->about.empty()) known->about = std::move(key.about);
  } else {
    if (key.about.empty()) key.about = known->about;
    key.required = key.required || (known->required && known->type == KeyShape::Type::kAny);
    if (known->type == KeyShape::Type::kAny) *known = std::move(key);
  }
}

}  // namespace shape
}  // namespace kvcast::config
