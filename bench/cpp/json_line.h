// One figure as one line of JSON on standard output.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace bench {

class JsonLine {
 public:
  explicit JsonLine(std::string_view figure) { add("figure", figure); }
  JsonLine(const JsonLine&) = delete;
  ~JsonLine() {
    std::printf("{%s}\n", text_.c_str());
    std::fflush(stdout);
  }

  // Text without quotes or backslashes, numbers, bools, and vectors of them. NaN and infinity are
  // null.
  template <class T>
  JsonLine& add(std::string_view key, const T& value) {
    if (!text_.empty()) text_.append(", ");
    text_.append(json(key)).append(": ").append(json(value));
    return *this;
  }

 private:
  static std::string json(std::string_view text) {
    return std::string(1, '"').append(text).append(1, '"');
  }
  static std::string json(const char* text) { return json(std::string_view(text)); }
  static std::string json(const std::string& text) { return json(std::string_view(text)); }
  static std::string json(bool value) { return value ? "true" : "false"; }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  static std::string json(T value) {
    if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else {
      if (!std::isfinite(value)) return "null";
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.6g", static_cast<double>(value));
      return digits;
    }
  }
  template <class T>
  static std::string json(const std::vector<T>& values) {
    std::string list;
    for (const T& value : values) list.append(list.empty() ? "[" : ", ").append(json(value));
    return list.empty() ? "[]" : list.append("]");
  }

  std::string text_;
};

}  // namespace bench
