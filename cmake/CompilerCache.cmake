# ccache, where it is found. Paths below the source folder count as relative ones, so that objects of
# one tree serve another (the wheel's, which is built from the sdist, the editable one).
find_program(LEASHED_CCACHE ccache)
if(LEASHED_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LEASHED_CCACHE})
endif()

# leashed_include_by_link(<target> <folder>): finds the headers of an installed library by a link in
# the build folder first. A virtual environment lies below one tree's source folder and not another's.
function(leashed_include_by_link target folder)
  if(LEASHED_CCACHE)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
    file(CREATE_LINK ${folder} ${PROJECT_BINARY_DIR}/include/${target} SYMBOLIC)
    target_include_directories(${target} SYSTEM BEFORE PRIVATE ${PROJECT_BINARY_DIR}/include/${target})
  endif()
endfunction()
