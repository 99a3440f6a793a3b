/// Files that are part of the program: the page of a report and the plotting library it uses.
#pragma once

#include <string_view>

namespace command::resources {

std::string_view page();     ///< page/report.html
std::string_view style();    ///< page/report.css
std::string_view script();   ///< page/report.js
std::string_view library();  ///< D3, from the distribution

}  // namespace command::resources
