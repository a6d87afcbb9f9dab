# ccache, where it is found. Paths below the source folder count as relative ones, so that objects of
# one tree serve another (the wheel's, which is built from the sdist, the editable one).
find_program(LEASHED_CCACHE ccache)
if(LEASHED_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LEASHED_CCACHE})
endif()
