// Strict conversion of values to JSON and back: one description of a struct's members serves both directions, so that
// they cannot disagree. A struct T takes part by `template <class Io> void members(Io& io, T& value)` in its own
// namespace, which calls io("name", value.member) for each member.
//
// Empty lists, optionals and pointers are left out; every other member must be present, and no other is allowed. Errors
// are std::exception.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/interval.hpp"
#include "base/origin.hpp"

namespace kvcast::store {

// Seconds by name: {"gemm": 0.5}, zeros left out.
template <std::size_t N>
struct Named {
  std::array<double, N>& values;
  std::string_view (*name)(std::size_t index);
};

class Writer;
class Reader;
template <class T>
nlohmann::json struct_json(T& value);
template <class T>
void read_struct(const nlohmann::json& json, T& value);

// Texts that are not UTF-8 are written as {"hex": "fffe"}.
nlohmann::json value_json(const std::string& text);
// Numbers that are not finite are written as "nan", "inf" and "-inf".
nlohmann::json value_json(double number);
inline nlohmann::json value_json(bool flag) { return flag; }
inline nlohmann::json value_json(int number) { return number; }
inline nlohmann::json value_json(std::int64_t number) { return number; }
inline nlohmann::json value_json(Origin origin) { return origin_name(origin); }
inline nlohmann::json value_json(const Interval& i) { return {value_json(i.low), value_json(i.high)}; }
inline nlohmann::json value_json(const std::pair<std::string, std::string>& pair) {
  return nlohmann::json::array({value_json(pair.first), value_json(pair.second)});
}
template <class T>
requires requires(Writer& io, T& value) { members(io, value); }
nlohmann::json value_json(T& value) { return struct_json(value); }
template <class T>
nlohmann::json value_json(std::vector<T>& list) {
  nlohmann::json out = nlohmann::json::array();
  for (T& entry : list) out.push_back(value_json(entry));
  return out;
}
template <std::size_t N>
nlohmann::json value_json(const Named<N>& named) {
  nlohmann::json out = nlohmann::json::object();
  for (std::size_t i = 0; i < N; ++i) {
    if (named.values[i] != 0) out[std::string(named.name(i))] = value_json(named.values[i]);
  }
  return out;
}

void read_value(const nlohmann::json& json, std::string& text);
void read_value(const nlohmann::json& json, double& number);
void read_value(const nlohmann::json& json, bool& flag);
void read_value(const nlohmann::json& json, int& number);
void read_value(const nlohmann::json& json, std::int64_t& number);
void read_value(const nlohmann::json& json, Origin& origin);
void read_value(const nlohmann::json& json, Interval& interval);
void read_value(const nlohmann::json& json, std::pair<std::string, std::string>& pair);
// Throws unless the JSON is an array, of `size` entries if a size is given.
const nlohmann::json& as_list(const nlohmann::json& json, std::optional<std::size_t> size = {});
template <class T>
requires requires(Reader& io, T& value) { members(io, value); }
void read_value(const nlohmann::json& json, T& value) { read_struct(json, value); }
template <class T>
void read_value(const nlohmann::json& json, std::vector<T>& list) {
  for (const nlohmann::json& entry : as_list(json)) read_value(entry, list.emplace_back());
}
template <std::size_t N>
void read_value(const nlohmann::json& json, const Named<N>& named) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < N; ++i) {
    const auto found = json.find(std::string(named.name(i)));
    if (found != json.end()) read_value(*found, named.values[i]), ++seen;
  }
  if (!json.is_object() || seen != json.size()) throw std::runtime_error("unknown name in " + json.dump());
}

class Writer {
 public:
  template <class T>
  void operator()(const char* name, T&& value) {
    out_[name] = value_json(value);
  }
  template <class T>
  void operator()(const char* name, std::vector<T>& list) {
    if (!list.empty()) out_[name] = value_json(list);
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    if (value) out_[name] = value_json(*value);
  }
  template <class T>
  void operator()(const char* name, std::shared_ptr<T>& value) {
    if (value) out_[name] = value_json(value);
  }

  const nlohmann::json& out() const { return out_; }

 private:
  nlohmann::json out_ = nlohmann::json::object();
};

class Reader {
 public:
  explicit Reader(const nlohmann::json& in) : in_(in) {
    if (!in.is_object()) throw std::runtime_error("expected an object, found " + in.dump());
  }

  template <class T>
  void operator()(const char* name, T&& value) {
    const nlohmann::json* const found = find(name);
    if (found == nullptr) throw std::runtime_error(fmt::format("\"{}\" is missing", name));
    read_value(*found, value);
  }
  template <class T>
  void operator()(const char* name, std::vector<T>& list) {
    if (const nlohmann::json* const found = find(name)) read_value(*found, list);
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    if (const nlohmann::json* const found = find(name)) read_value(*found, value.emplace());
  }
  template <class T>
  void operator()(const char* name, std::shared_ptr<T>& value) {
    if (const nlohmann::json* const found = find(name)) read_value(*found, value);
  }

  // Throws if there is a member that was not requested.
  void finish() const {
    for (const auto& [name, value] : in_.items()) {
      if (std::find(seen_.begin(), seen_.end(), name) == seen_.end()) {
        throw std::runtime_error(fmt::format("\"{}\" is unknown", name));
      }
    }
  }

 private:
  const nlohmann::json* find(const char* name) {
    const auto found = in_.find(name);
    if (found == in_.end()) return nullptr;
    seen_.emplace_back(name);
    return &*found;
  }

  const nlohmann::json& in_;
  std::vector<std::string> seen_;  // copies, because a caller may build names on its stack
};

template <class T>
nlohmann::json struct_json(T& value) {
  Writer io;
  members(io, value);
  return io.out();
}

template <class T>
void read_struct(const nlohmann::json& json, T& value) {
  Reader io(json);
  members(io, value);
  io.finish();
}

}  // namespace kvcast::store
