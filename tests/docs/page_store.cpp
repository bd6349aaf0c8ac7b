// page_store DIR: writes the stores on which the queries of docs/results.md are shown.
#include "docs/page_stores.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  kvcast::tests::write_page_stores(argv[1]);
  return 0;
}
