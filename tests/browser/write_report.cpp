// report_writer DIR OUT [KEY=VALUE ...]: the report of a store, as `kvcast report DIR -o OUT --where KEY=VALUE` makes
// it.
#include <cstdio>
#include <exception>

#include "report/report.hpp"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: report_writer DIR OUT [KEY=VALUE ...]\n");
    return 2;
  }
  try {
    std::printf("%s\n",
                kvcast::report::write_report({argv[1]}, argv[2], {.where = {argv + 3, argv + argc}}).page.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
