// Parameters bound to members of a struct of settings: each is declared, documented and read in one statement.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "policy/group.hpp"
#include "policy/parameters.hpp"

namespace kvcast::policy {

// A whole number, a real one, and a text of several; the default of a choice is its first name.
inline Parameter whole(std::string key, std::int64_t fallback, std::string unit, std::string meaning, double low = 0,
                       double high = 1e9) {
  return {.key = std::move(key),
          .fallback = fallback,
          .unit = std::move(unit),
          .meaning = std::move(meaning),
          .low = low,
          .high = high};
}
inline Parameter real(std::string key, double fallback, std::string meaning, double low = 0, double high = 1) {
  return {
      .key = std::move(key), .fallback = fallback, .unit = "", .meaning = std::move(meaning), .low = low, .high = high};
}
// A number, or by default a word that stands for one.
inline Parameter whole_or(std::string key, std::string word, std::string unit, std::string meaning, double low,
                          double high) {
  return {.key = std::move(key),
          .fallback = word,
          .unit = std::move(unit),
          .meaning = std::move(meaning),
          .low = low,
          .high = high,
          .names = {word, "<integer>"}};
}
inline Parameter real_or(std::string key, std::string word, std::string meaning, double low, double high) {
  return {.key = std::move(key),
          .fallback = word,
          .unit = "",
          .meaning = std::move(meaning),
          .low = low,
          .high = high,
          .names = {word, "<number>"}};
}
inline Parameter flag(std::string key, bool fallback, std::string meaning) {
  return {.key = std::move(key), .fallback = fallback, .unit = "", .meaning = std::move(meaning)};
}
inline Parameter choice(std::string key, std::vector<std::string> names, std::string meaning) {
  return {.key = std::move(key),
          .fallback = names.front(),
          .unit = "",
          .meaning = std::move(meaning),
          .names = std::move(names)};
}

template <typename S>
class Fields {
 public:
  // A choice is read as whether it is not its first name (bool), as the Group of that name, as the enumerator whose
  // place among the enumerators is that of the name among the names, or as text; a text in place of a whole number
  // ("prompt") is read as 0, and in place of an optional one as none.
  template <typename T, typename Base>
  Fields& add(Parameter p, T Base::*member) {
    return bind(std::move(p), [member](S& s) -> T& { return s.*member; });
  }
  // A member of a struct inside the settings.
  template <typename T, typename Inner, typename Base>
  Fields& add(Parameter p, Inner Base::*inner, T Inner::*member) {
    return bind(std::move(p), [inner, member](S& s) -> T& { return s.*inner.*member; });
  }

  // A choice whose names stand for these values, in their order.
  template <typename T, typename Base>
  Fields& add(Parameter p, T Base::*member, std::vector<T> meanings) {
    readers_.push_back([key = p.key, names = p.names, member, meanings](const ParameterValues& values, S& s) {
      const auto found = std::find(names.begin(), names.end(), values.text(key));
      s.*member = meanings.at(static_cast<std::size_t>(found - names.begin()));
    });
    return add(std::move(p));
  }

  // All of another list.
  Fields& add(const Fields& other) {
    readers_.insert(readers_.end(), other.readers_.begin(), other.readers_.end());
    return add(other.parameters_);
  }
  // Those of a struct that is a part of these settings.
  template <typename Inner, typename Base>
  Fields& add(const Fields<Inner>& part, Inner Base::*inner) {
    readers_.push_back(
        [part, inner](const ParameterValues& values, S& s) { s.*inner = part.read(values, std::move(s.*inner)); });
    return add(part.parameters());
  }

  // Those that are read elsewhere.
  Fields& add(Parameter p) {
    parameters_.push_back(std::move(p));
    return *this;
  }
  Fields& add(const std::vector<Parameter>& list) {
    parameters_.insert(parameters_.end(), list.begin(), list.end());
    return *this;
  }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  S read(const ParameterValues& values) const { return read(values, S()); }
  // Over what is set already.
  S read(const ParameterValues& values, S s) const {
    for (const auto& reader : readers_) reader(values, s);
    return s;
  }

 private:
  template <typename Access>
  Fields& bind(Parameter p, Access access) {
    readers_.push_back([key = p.key, names = p.names, access](const ParameterValues& values, S& s) {
      auto& to = access(s);
      using T = std::remove_reference_t<decltype(to)>;
      if constexpr (std::is_same_v<T, bool>) {
        to = names.empty() ? values.flag(key) : values.text(key) != names.front();
      } else if constexpr (std::is_same_v<T, Group>) {
        to = parse_group(values.text(key));
      } else if constexpr (std::is_enum_v<T>) {
        to = static_cast<T>(std::find(names.begin(), names.end(), values.text(key)) - names.begin());
      } else if constexpr (std::is_integral_v<T>) {
        to = values.is_text(key) ? 0 : static_cast<T>(values.integer(key));
      } else if constexpr (std::is_floating_point_v<T>) {
        to = values.number(key);
      } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
        to = values.is_text(key) ? std::nullopt : T(values.integer(key));
      } else if constexpr (std::is_same_v<T, std::optional<double>>) {
        to = values.is_text(key) ? std::nullopt : T(values.number(key));
      } else {
        to = values.text(key);
      }
    });
    return add(std::move(p));
  }

  std::vector<Parameter> parameters_;
  std::vector<std::function<void(const ParameterValues&, S&)>> readers_;
};

}  // namespace kvcast::policy
