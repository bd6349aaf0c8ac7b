// Radix selection. One block per row examines two bits of a score per pass, then reads the row twice to write the
// scores above the last pick and those equal to it: 8 or 16 passes and two. A special-purpose selection examines eight
// bits per pass and reads the row once more to write. Several blocks per row examine eight bits per pass; each pass is
// one kernel over the scores and one that adds up the blocks' counts. Two scans place the blocks' picks, and a last
// kernel over the scores writes them. Up to 4096 picks are sorted by one kernel, with one block per row.
#include "lower/torch_topk.hpp"

#include <cmath>

namespace kvcast::lower {
namespace {

using graph::Kernel;
using graph::KernelClass;
using graph::TopK;

constexpr double kDigitBits = 8;             // bits per pass of several blocks
constexpr double kBlockDigitBits = 2;        // bits per pass of one block
constexpr double kCounts = 256, kCount = 2;  // counters of a block, bytes of each
constexpr double kBlockScores = 256 * 16;    // threads per block, scores per thread

void by_several_blocks(const TopK& work, TopKKernels& kernels) {
  const double scores = work.rows * work.columns * work.score_bytes;
  const double blocks = work.rows * std::ceil(work.columns / kBlockScores), counts = blocks * kCounts * kCount;
  for (double bits = 8 * work.score_bytes; bits > 0; bits -= kDigitBits) {
    kernels.push_back(Kernel{KernelClass::kReduce, scores, counts});
    kernels.push_back(Kernel{KernelClass::kReduce, counts, blocks * 4});
  }
  for (int scan = 0; scan < 2; ++scan) {  // for scores above the last pick, and for those equal to it; with set-up
    kernels.push_back(Kernel{KernelClass::kElementwise, 0, blocks});
    kernels.push_back(Kernel{KernelClass::kReduce, blocks * 4, blocks * 4});
  }
  kernels.push_back(Kernel{KernelClass::kGather, scores, work.rows * work.k * (work.score_bytes + kTorchIndex)});
}

}  // namespace

bool shares_rows(double rows, double columns) {
  struct Limit {
    double rows, columns;
  };
  constexpr Limit kLimits[] = {{20, 20000}, {40, 10000}, {80, 8000}, {199, 5000}, {799, 3000}, {4000, 800}};
  for (const Limit& limit : kLimits) {
    if (rows <= limit.rows) return columns >= limit.columns;
  }
  return columns >= 400;
}

TopKKernels torch_topk(const TopK& work) {
  TopKKernels kernels;
  if (shares_rows(work.rows, work.columns)) {
    by_several_blocks(work, kernels);
  } else {
    TopK selection = work;
    const double bits = 8 * work.score_bytes;
    selection.passes = (bits / kBlockDigitBits + 2) / (bits / kDigitBits + 1);
    kernels.push_back(selection);
  }
  // Sorting takes at least the passes of a selection over the picks.
  if (work.k > 1) kernels.push_back(TopK{work.rows, work.k, 0, work.score_bytes});
  return kernels;
}

}  // namespace kvcast::lower
