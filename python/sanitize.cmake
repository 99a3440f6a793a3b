# The module under the address sanitizer, in an interpreter that knows nothing of it: the sanitizer's library is loaded before all else. Python
# takes its memory from malloc then, so that objects that are used after their end are found as well; leaks are those of the interpreter, and
# not looked for. To keep it short, the sources are not optimised and share what they include, and only the tests run that are about whose
# memory is whose.
set(sanitized_tests bad_input eager_changes eager_group_rows eager_groups eager_node_hooks eager_node_rows eager_passes eager_post_accumulate
    eager_tensor_hooks eager_tensor_rows function hook_errors lifetime lifetime_cycles nn_hooks nn_lifetime nn_module stable_memory threads)

target_compile_options(_core PRIVATE -O0 -fno-sanitize=undefined)
target_precompile_headers(_core PRIVATE src/bind.h)
# Exceptions pass through the sanitizer, which looks for their library when it is loaded.
foreach(library asan stdc++)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${library}.so OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND preloaded ${path})
endforeach()
list(JOIN preloaded ":" preloaded)
set(sanitized_environment LD_PRELOAD=${preloaded} ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:allocator_may_return_null=1 PYTHONMALLOC=malloc GRAPNEL_SANITIZED=1)
