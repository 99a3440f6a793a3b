/// Demangled names, short enough for a message: parameters, template arguments and outer namespaces
/// are cut.
///
///   app::(anonymous namespace)::train<float>(Net&)      app::train()
///   main::{lambda(Tensor const&)#1}::operator()(...)    lambda in main()
#pragma once

#include <string>
#include <string_view>
#include <typeinfo>

namespace grapnel::base {

/// Of a function, as the compiler mangled it.
std::string short_function_name(const char* symbol);
/// Of a class: "Net" for app::Net, "Net<...>" for a template.
std::string short_type_name(const std::type_info& type);
/// The same for a name that is demangled already, or none of C++.
std::string short_type_name(const std::string& name);
/// What the two make of a demangled name.
std::string shorten(std::string_view demangled, bool is_function);

}  // namespace grapnel::base
