// gdb finds tools/gdb_printers.py in programs that contain the static library: see cmake/gdb.cmake.
asm(R"(
  .pushsection .debug_gdb_scripts, "MS", @progbits, 1
  .byte 4
  .ascii "gdb.inlined-script.grapnel\n"
  .incbin "tools/gdb_printers.py"
  .byte 0
  .popsection
)");

/// Programs ask for this name, and so get this file.
extern "C" {
extern const char grapnel_gdb_printers;
const char grapnel_gdb_printers = 0;
}
