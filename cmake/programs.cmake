# Every examples/*.cpp and bench/*.cpp is a program of its name. The tests run the examples, except
# `demo`, which trains for a while and belongs to `make demo`.
add_custom_target(examples)
add_custom_target(bench)

file(GLOB sources CONFIGURE_DEPENDS examples/*.cpp)
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE Grapnel::grapnel)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  add_dependencies(examples ${name})
  if(name STREQUAL demo)
    find_package(ZLIB REQUIRED)  # The data set is stored compressed.
    target_link_libraries(${name} PRIVATE ZLIB::ZLIB)
  else()
    add_test(NAME example_${name} COMMAND ${name})
    grapnel_test_properties(example_${name})
  endif()
endforeach()

file(GLOB sources CONFIGURE_DEPENDS bench/*.cpp)
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  add_executable(bench_${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(bench_${name} PRIVATE Grapnel::grapnel)
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(bench bench_${name})
endforeach()
