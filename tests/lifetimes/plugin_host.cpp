/// A program without the library, which loads a plugin that contains it: `plugin_host PLUGIN KIND`.
/// The plugin is closed while a thread that has used it lives on, several times. Run by
/// check_ends.py.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <thread>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: plugin_host PLUGIN KIND\n");
    return 2;
  }
  const char *const plugin = argv[1], *const kind = argv[2];
  alarm(100);
  for (int i = 0; i < 3; ++i) {
    void* const opened = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    auto* const use =
        reinterpret_cast<void (*)(const char*)>(opened ? dlsym(opened, "use_once") : nullptr);
    if (use == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 2;
    }
    std::promise<void> used, closed;
    std::thread user([&] {
      use(kind);
      used.set_value();
      closed.get_future().wait();
    });
    used.get_future().wait();
    use(kind);
    dlclose(opened);
    closed.set_value();
    user.join();
  }
  if (dlopen(plugin, RTLD_NOW | RTLD_NOLOAD) == nullptr) {
    std::fprintf(stderr, "the plugin is gone\n");
    return 1;
  }
  std::puts("used at the end");
  return 0;
}
