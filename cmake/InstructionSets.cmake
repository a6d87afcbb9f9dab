if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "leashed needs g++ 12 or newer, this is ${CMAKE_CXX_COMPILER_VERSION}; "
                      "set CXX where another is installed, as in CXX=g++-12")
endif()

# leashed_add_kernels(<target> <sources...>): compiles each source once for every instruction-set
# level of the target architecture, with LEASHED_ISA set to the level's name (base/isa.h), and
# optimises it as far as the compiler can; for CPUs without AVX2, on which nothing is measured, only as
# the rest of the core is: a sixth smaller.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(LEASHED_ONE_ISA neon)
  set(LEASHED_ISA_FLAGS_neon "")
else()
  set(LEASHED_ISA_LEVELS v2 v3 v4)
  set(LEASHED_ISA_FLAGS_v2 -march=x86-64-v2)
  set(LEASHED_ISA_FLAGS_v3 -march=x86-64-v3 -mprefer-vector-width=256)
  set(LEASHED_ISA_FLAGS_v4 -march=x86-64-v4 -mprefer-vector-width=512)
endif()
if(LEASHED_ONE_ISA)
  set(LEASHED_ISA_LEVELS ${LEASHED_ONE_ISA})
  target_compile_definitions(leashed_options INTERFACE LEASHED_ONE_ISA=${LEASHED_ONE_ISA})
endif()

function(leashed_add_kernels target)
  foreach(level IN LISTS LEASHED_ISA_LEVELS)
    set(library ${target}_${level})
    add_library(${library} OBJECT ${ARGN})
    target_compile_definitions(${library} PRIVATE LEASHED_ISA=${level} LEASHED_ISA_${level}=1)
    target_compile_options(${library} PRIVATE ${LEASHED_ISA_FLAGS_${level}} -fno-math-errno -fno-trapping-math)
    if(NOT LEASHED_SANITIZE AND NOT level STREQUAL v2)
      target_compile_options(${library} PRIVATE $<$<CONFIG:Release>:-O3>)
    endif()
    target_link_libraries(${library} PRIVATE leashed_options leashed_sanitizers)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
  endforeach()
endfunction()
