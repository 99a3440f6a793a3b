/// What a front end in another language tells the library: what its lines are called, and when its
/// objects are let go.
///
/// The library knows nothing of the language. A tensor's header and a node have one word for the
/// object that stands for them there (`wrapper`), and sites may be foreign (Note [Foreign sites] in
/// base/source_site.h).
#pragma once

#include <string>

#include "grapnel/base/source_site.h"

namespace grapnel::base {

/// Functions of the front end; any may be null. They may be called on every thread.
struct ForeignLanguage {
  /// What is printed for SourceSite::foreign(number): "train.py:12 (step)".
  std::string (*describe)(uint64_t number) = nullptr;
  /// The line of the language that runs on this thread, for messages about what fails now; an empty
  /// site if none does.
  SourceSite (*now)() = nullptr;
  /// A header or a node that still has a `wrapper` dies: whoever gave it one has to let go of it. The
  /// object may be dead already for all others, so it is not to be used.
  void (*let_go)(void* wrapper) noexcept = nullptr;
};

/// There is one such language at a time. Set it before there are foreign sites or wrappers, and leave
/// it as long as there are.
void set_foreign_language(const ForeignLanguage& language);

/// What `describe` says, or the number if there is nobody to ask.
std::string describe_foreign(SourceSite site);
/// The line that runs on this thread, or an empty site.
SourceSite foreign_site_now();
void let_go_of_wrapper(void* wrapper) noexcept;

}  // namespace grapnel::base
