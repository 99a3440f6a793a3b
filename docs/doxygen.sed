# What Doxygen reads instead of the files as they are. A header's first comment is about the file; links within a page have another form;
# and what is indented is code, for which Markdown wants four spaces.
1s|^/// |/// @file\
/// |
s|](#[a-z-]*)|]|
s|^\( *///   \)|\1  |
