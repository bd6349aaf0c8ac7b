// A JSON value: built, written and read back. The measuring program needs no more than the standard library. Objects
// keep the order in which their members were added, so that files differ only if results do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kvcast::kernels {

class Json {
 public:
  using Array = std::vector<Json>;
  using Members = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  Json(bool v) : value_(v) {}                      // NOLINT: values convert as in JSON itself
  Json(int v) : value_(std::int64_t{v}) {}         // NOLINT
  Json(std::int64_t v) : value_(v) {}              // NOLINT
  Json(double v) : value_(v) {}                    // NOLINT
  Json(std::string v) : value_(std::move(v)) {}    // NOLINT
  Json(const char* v) : value_(std::string(v)) {}  // NOLINT
  static Json array() { return Json(Value(Array{})); }
  static Json object() { return Json(Value(Members{})); }

  // The member of that name, added as null if missing. The value must be an object (or null, which becomes one).
  Json& operator[](const std::string& name);
  // Null if there is no such member, or this is not an object.
  const Json* find(std::string_view name) const;
  void push(Json element);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  const Array& elements() const;   // empty if this is not an array
  const Members& members() const;  // empty if this is not an object
  std::string text() const;        // a string's content; empty for other types
  double number(double other = 0) const;

  // Numbers are written so that reading gives the same bits; non-finite ones become null. indent < 0: one line.
  std::string dump(int indent = -1) const;
  // Throws std::runtime_error "name:line: what" for anything that RFC 8259 does not allow.
  static Json parse(std::string_view text, const std::string& name);

 private:
  using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Members>;
  explicit Json(Value v) : value_(std::move(v)) {}
  void write(std::string& out, int indent, int depth) const;
  Value value_;
};

}  // namespace kvcast::kernels
