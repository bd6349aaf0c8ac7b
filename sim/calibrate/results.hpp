// Results of the measuring programs: JSON of schema kvcast-kernels/1 (kernels/README.md).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace kvcast::calibrate {

// One measured case.
struct MeasuredRow {
  std::string bench, mode;  // mode: cold or batch
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> words;
  std::map<std::string, double> work;  // of one call: bytes, flops, ...
  std::vector<double> passes;          // seconds: the median of one call, in each pass over the cases
  double seconds = 0;                  // the median (geometric mean of two)
  double noise = 0;                    // relative noise of the samples of the first pass
  // difference between two halves of the passes: longer over shorter, less 1; 0 if there was one pass
  double spread = 0;
  std::string file;  // the first file that contains it

  // Returns the axis or entry of work of this name. Throws UserError naming the file if the row lacks it.
  double number(const std::string& axis) const;  // above 0
  bool flag(const std::string& axis) const;      // a number that may be 0
  const std::string& word(const std::string& axis) const;
  double of_work(const std::string& name) const;
  std::string id() const;  // "cpu_topk k=64 n=256 rows=1 threads=2 batch"
};

struct Results {
  std::string file;
  std::map<std::string, std::string> texts;  // texts of the environment: date, host_cpu, device, git, ...
  std::map<std::string, double> quantities;  // quantities of the environment: cores, sm_count, l2_bytes, ...
  std::vector<MeasuredRow> rows;     // usable ones, in the order of the file; each case once, whatever its passes
  std::vector<MeasuredRow> skipped;  // rows with a reason not to use them, or without a time; their seconds are 0
};

// Throws UserError if the file cannot be read, is not JSON, has a key twice or another schema, or states what no
// measurement gives: times that are not positive or beyond 1e6 s, quartiles out of order, no sample, a part of a
// thread.
Results read_results(const std::string& path);

// Lists the benchmarks of rows that neither kvcast-kernels nor kvcast-kernels-cpu has: "topq (3 rows)". Empty if there
// are none.
std::string unknown_benches(const Results& results);

// Reads several files of one machine as one: a case that occurs in several has a pass from each. Throws UserError
// naming both files if their devices, processors or programs differ.
Results read_results(const std::vector<std::string>& paths);

}  // namespace kvcast::calibrate
