#define DOCTEST_CONFIG_IMPLEMENT  // said too, where the header is compiled before
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
