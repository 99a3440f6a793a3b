// The main function of every test program. Both macros, since the precompiled header already holds
// the part of doctest that derives the second from the first.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
