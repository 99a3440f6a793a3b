# What Doxygen reads instead of the files as they are. A header's first comment is about the file; links within a page have another form.
1s|^/// |/// @file\
/// |
s|](#[a-z-]*)|]|
