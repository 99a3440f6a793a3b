#include "command/resources.h"

// The assembler takes in the files as they are; their paths come from CMakeLists.txt.
#define GRAPNEL_EMBED(symbol, path)                                        \
  asm(".pushsection .rodata\n" #symbol ":\n.incbin \"" path "\"\n" #symbol \
      "_end:\n.byte 0\n.popsection\n");                                    \
  extern "C" const char symbol[], symbol##_end[]

GRAPNEL_EMBED(grapnel_report_page, GRAPNEL_PAGE "/report.html");
GRAPNEL_EMBED(grapnel_report_style, GRAPNEL_PAGE "/report.css");
GRAPNEL_EMBED(grapnel_report_script, GRAPNEL_PAGE "/report.js");
GRAPNEL_EMBED(grapnel_report_library, GRAPNEL_D3);

namespace command::resources {

std::string_view page() { return {grapnel_report_page, grapnel_report_page_end}; }
std::string_view style() { return {grapnel_report_style, grapnel_report_style_end}; }
std::string_view script() { return {grapnel_report_script, grapnel_report_script_end}; }
std::string_view library() { return {grapnel_report_library, grapnel_report_library_end}; }

}  // namespace command::resources
