// Matrix operations against loops in double precision.
#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "base/log_sum_exp.hpp"
#include "base/matrix.hpp"
#include "base/random.hpp"

namespace kvcast::tests {

namespace {

std::vector<float> random_floats(const Stream& stream, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(stream.normal(i));
  return x;
}

double naive_dot(const float* a, const float* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// The rounding error of a float sum of n products of standard normals is at most about n · 2^-24 times their size.
double allowed_error(std::size_t n) { return 1e-6 * (1 + static_cast<double>(n)); }

}  // namespace

TEST_CASE("multiply_transposed computes all dot products of rows, with strides", "[matrix]") {
  struct Shape {
    std::size_t rows_a, rows_b, cols, pad_a, pad_b, pad_out;
  };
  for (const Shape& s :
       {Shape{1, 1, 1, 0, 0, 0}, Shape{3, 5, 7, 0, 0, 0}, Shape{4, 100, 64, 3, 5, 2}, Shape{17, 33, 128, 0, 9, 1},
        Shape{1, 300, 128, 64, 0, 0}, Shape{53, 70, 1100, 1, 2, 3}, Shape{49, 1030, 128, 0, 0, 0}}) {
    CAPTURE(s.rows_a, s.rows_b, s.cols);
    const std::vector<float> a = random_floats(Stream(1), s.rows_a * (s.cols + s.pad_a));
    const std::vector<float> b = random_floats(Stream(2), s.rows_b * (s.cols + s.pad_b));
    const MatrixView va{a.data(), s.rows_a, s.cols, s.cols + s.pad_a};
    const MatrixView vb{b.data(), s.rows_b, s.cols, s.cols + s.pad_b};
    const std::size_t stride = s.rows_b + s.pad_out;
    std::vector<float> out(s.rows_a * stride, -77.0f);
    multiply_transposed(va, vb, out.data(), stride);
    for (std::size_t i = 0; i < s.rows_a; ++i) {
      for (std::size_t j = 0; j < s.rows_b; ++j) {
        const double expected = naive_dot(va.row(i), vb.row(j), s.cols);
        REQUIRE(std::abs(static_cast<double>(out[i * stride + j]) - expected) < allowed_error(s.cols));
      }
      for (std::size_t j = s.rows_b; j < stride; ++j) REQUIRE(out[i * stride + j] == -77.0f);
    }
    for (const SimdLoops& loops : simd_loops()) {
      std::vector<float> other(out.size(), -77.0f);
      multiply_transposed(va, vb, other.data(), stride, {}, loops);
      CHECK(other == out);  // bit by bit
    }
  }
}

TEST_CASE("multiply sums rows by weights, with strides, for few and many rows and depths", "[matrix]") {
  struct Shape {
    std::size_t rows, depth, cols;
  };
  for (const Shape& s : {Shape{1, 40, 128}, Shape{4, 1, 1}, Shape{7, 5, 33}, Shape{50, 1100, 70}, Shape{96, 512, 64}}) {
    CAPTURE(s.rows, s.depth, s.cols);
    const std::size_t a_stride = s.depth + 3, b_stride = s.cols + 5, stride = s.cols + 2;
    const std::vector<float> a = random_floats(Stream(5), s.rows * a_stride);
    const std::vector<float> b = random_floats(Stream(6), s.depth * b_stride);
    for (const SimdLoops& loops : simd_loops()) {
      std::vector<float> out(s.rows * stride, -77.0f);
      multiply({a.data(), s.rows, s.depth, a_stride}, {b.data(), s.depth, s.cols, b_stride}, out.data(), stride, loops);
      for (std::size_t i = 0; i < s.rows; ++i) {
        for (std::size_t j = 0; j < s.cols; ++j) {
          double expected = 0;
          for (std::size_t c = 0; c < s.depth; ++c) {
            expected += static_cast<double>(a[i * a_stride + c]) * static_cast<double>(b[c * b_stride + j]);
          }
          REQUIRE(std::abs(static_cast<double>(out[i * stride + j]) - expected) < allowed_error(s.depth));
        }
        for (std::size_t j = s.cols; j < stride; ++j) REQUIRE(out[i * stride + j] == -77.0f);
      }
    }
  }
}

TEST_CASE("products with no rows write nothing", "[matrix]") {
  const std::vector<float> x(8, 1.0f);
  float out = -77.0f;
  multiply_transposed({x.data(), 0, 4, 4}, {x.data(), 2, 4, 4}, &out, 2);
  multiply_transposed({x.data(), 2, 4, 4}, {x.data(), 0, 4, 4}, &out, 1);
  CHECK(out == -77.0f);
}

TEST_CASE("multiply_rows sums chosen rows, in any order and repeated", "[matrix]") {
  struct Shape {
    std::size_t rows_a, chosen, cols, pad_a, pad_b, pad_out;
  };
  // Around the sizes that are processed together: 4 rows of a, 32 of b, 16 columns.
  for (const Shape& s : {Shape{1, 1, 1, 0, 0, 0}, Shape{4, 32, 16, 0, 0, 0}, Shape{3, 33, 17, 1, 2, 3},
                         Shape{7, 100, 80, 5, 0, 4}, Shape{8, 31, 128, 0, 16, 0}, Shape{2, 0, 20, 0, 0, 1}}) {
    CAPTURE(s.rows_a, s.chosen, s.cols);
    constexpr std::size_t kRows = 50;
    const std::vector<float> a = random_floats(Stream(3), s.rows_a * (s.chosen + s.pad_a));
    const std::vector<float> b = random_floats(Stream(4), kRows * (s.cols + s.pad_b));
    std::vector<const float*> rows(s.chosen);
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r] = b.data() + (7 * r + 3) % kRows * (s.cols + s.pad_b);
    const std::size_t stride = s.cols + s.pad_out;
    std::vector<float> out(s.rows_a * stride, -77.0f);
    multiply_rows({a.data(), s.rows_a, s.chosen, s.chosen + s.pad_a}, rows, s.cols, out.data(), stride);
    for (std::size_t i = 0; i < s.rows_a; ++i) {
      for (std::size_t j = 0; j < s.cols; ++j) {
        double expected = 0;
        for (std::size_t r = 0; r < rows.size(); ++r) {
          expected += static_cast<double>(a[i * (s.chosen + s.pad_a) + r]) * static_cast<double>(rows[r][j]);
        }
        REQUIRE(std::abs(static_cast<double>(out[i * stride + j]) - expected) < allowed_error(s.chosen));
      }
      for (std::size_t j = s.cols; j < stride; ++j) REQUIRE(out[i * stride + j] == -77.0f);
    }
  }
}

TEST_CASE("dot products are right for every length around the vector width", "[matrix]") {
  const std::vector<float> a = random_floats(Stream(3), 300);
  const std::vector<float> b = random_floats(Stream(4), 300);
  for (std::size_t n = 0; n <= 300; ++n) {
    REQUIRE(std::abs(static_cast<double>(dot(a.data(), b.data(), n)) - naive_dot(a.data(), b.data(), n)) <
            allowed_error(n));
  }
}

TEST_CASE("softmax agrees with exponentials in double precision", "[matrix]") {
  for (const std::size_t n : {1u, 2u, 7u, 8u, 9u, 511u, 512u, 513u, 5000u}) {
    for (const float scale : {1.0f, 0.088388348f, 12.0f, -1.0f}) {
      const std::vector<float> x = random_floats(Stream(n), n);
      double top = -1e300;
      for (const float v : x) top = std::max(top, static_cast<double>(scale) * static_cast<double>(v));
      double sum = 0;
      for (const float v : x) sum += std::exp(static_cast<double>(scale) * static_cast<double>(v) - top);

      std::vector<float> p = x;
      const double log_sum = softmax(p, scale);
      CAPTURE(n, scale);
      CHECK(log_sum == Approx(top + std::log(sum)).epsilon(1e-6).margin(2e-6));
      double total = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double expected = std::exp(static_cast<double>(scale) * static_cast<double>(x[i]) - top) / sum;
        // Scores up to about 50 in size carry rounding of 50 · 2^-24 = 3e-6 into the exponent.
        REQUIRE(std::abs(static_cast<double>(p[i]) - expected) <= 1e-5 * expected + 1e-37);
        total += static_cast<double>(p[i]);
      }
      CHECK(total == Approx(1).epsilon(1e-5));
    }
  }
}

TEST_CASE("log-sum-exp alone equals that of softmax", "[matrix]") {
  for (const std::size_t n : {1, 7, 8, 511, 512, 513, 4001}) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(Stream(3).normal(i) * 5);
    for (const float scale : {1.0f, 0.125f}) {
      std::vector<float> p = x;
      CHECK(log_sum_exp(x, scale) == softmax(p, scale));
    }
  }
}

TEST_CASE("softmax of scores far apart neither overflows nor divides by zero", "[matrix]") {
  std::vector<float> x = {30000.0f, -30000.0f, 29999.0f};
  const double log_sum = softmax(x);
  // exp(0) and exp(-1) over their sum: 1 / (1 + e^-1) = 0.731059.
  CHECK(static_cast<double>(x[0]) == Approx(0.731059).epsilon(1e-5));
  CHECK(static_cast<double>(x[2]) == Approx(0.268941).epsilon(1e-5));
  CHECK(x[1] < 1e-30f);
  CHECK(log_sum == Approx(30000 + std::log1p(std::exp(-1.0))).epsilon(1e-7));
}

TEST_CASE("softmax of equal scores is uniform", "[matrix]") {
  std::vector<float> x(1000, -12345.0f);
  softmax(x);
  for (const float p : x) CHECK(p == Approx(1e-3f).epsilon(1e-5));
}

TEST_CASE("a large product is computed in parts, and stops between them", "[matrix]") {
  // 1024 · 1100 · 4096 multiply-adds are more than 2^32, so that the rows are cut after 896 of them.
  const std::size_t rows = 1024, columns = 1100, n = 4096;
  const std::vector<float> a = random_floats(Stream(1), rows * n), b = random_floats(Stream(2), columns * n);
  std::vector<float> out(rows * columns, -77.0f);
  const MatrixView left{a.data(), rows, n, n}, right{b.data(), columns, n, n};
  multiply_transposed(left, right, out.data(), columns);
  for (const std::size_t i : {0, 895, 896, 1023}) {
    for (const std::size_t j : {0, 1099}) {
      const double expected = naive_dot(left.row(i), right.row(j), n);
      CHECK(std::abs(static_cast<double>(out[i * columns + j]) - expected) < allowed_error(n));
    }
  }
  std::stop_source stop;
  stop.request_stop();
  std::vector<float> untouched(rows * columns, -77.0f);
  CHECK_THROWS_AS(multiply_transposed(left, right, untouched.data(), columns, stop.get_token()), Cancelled);
  CHECK(untouched.front() == -77.0f);
}

}  // namespace kvcast::tests
