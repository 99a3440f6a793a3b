// The smallest program that needs the headers and the library: it provokes an error and prints it.
#include <grapnel/base/error.h>

#include <cstdio>

int main() {
  try {
    grapnel::check(1 + 1 == 3, "toy: one and one is ", 1 + 1, ", not 3.");
  } catch (const grapnel::Error& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}
