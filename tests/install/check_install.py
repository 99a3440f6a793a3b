#!/usr/bin/env python3
"""An installed Grapnel serves find_package and pkg-config, as static and as shared library, and built without LLVM.

    check_install.py BUILD_DIR

BUILD_DIR is a configured and built tree. It is installed as it is; for the other variants a tree is
configured like it and starts with its objects. Everything happens in a temporary folder.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What the second tree shares with the first, so that its objects are the same.
INHERITED = re.compile(r"^(CMAKE_BUILD_TYPE|CMAKE_CXX_COMPILER|CMAKE_CXX_COMPILER_LAUNCHER|CMAKE_CXX_FLAGS\w*"
                       r"|CMAKE_COMPILE_WARNING_AS_ERROR|CMAKE_PREFIX_PATH|GRAPNEL_COMMAND|GRAPNEL_LLVM|GRAPNEL_MPI|GRAPNEL_SANITIZE):\w+=(.*)$")


def run(*command, **env):
    """Runs a command to its end; its output is shown only when it fails."""
    command = [str(part) for part in command]
    done = subprocess.run(command, env={**os.environ, **env}, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def cache_of(build):
    """The inherited variables of a build tree, by name."""
    lines = (build / "CMakeCache.txt").read_text().splitlines()
    return dict(match.groups() for match in map(INHERITED.match, lines) if match)


def build_like(build, folder, *changes):
    """The library and the command in `folder`, configured as in `build` but for the changes."""
    settings = [f"-D{name}={value}" for name, value in cache_of(build).items()]
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *settings, "-DGRAPNEL_DEVELOPER=OFF", *changes)
    # The same commands make the same objects (see CMAKE_POSITION_INDEPENDENT_CODE), and Ninja's logs let it know them.
    for file in (*build.glob("grapnel/**/*.o"), *build.glob("command/**/*.o"), build / ".ninja_log", build / ".ninja_deps"):
        copy = folder / file.relative_to(build)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    run("cmake", "--build", folder)


def toy_with_cmake(prefix, folder, compiler):
    run("cmake", "-S", HERE / "toy", "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_CXX_COMPILER={compiler}")
    run("cmake", "--build", folder)
    return run(folder / "toy")


def toy_with_pkg_config(prefix, folder, compiler):
    pc = next(prefix.glob("lib*/**/pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "grapnel", PKG_CONFIG_PATH=str(pc)).split()
    program = folder.with_suffix(".pc")
    run(compiler, "-std=c++20", HERE / "toy" / "toy.cpp", "-o", program, *flags)
    return run(program, LD_LIBRARY_PATH=str(pc.parent))


def the_command(prefix, folder, compiler):
    """Finds the module beside itself, wherever it was installed."""
    return run(prefix / "bin" / "grapnel", "doctor")


def printers(prefix, folder):
    """gdb finds how to show values: in the program or beside a shared library, if it trusts them, and under one name everywhere."""
    if not (prefix / "share/grapnel/gdb_printers.py").exists():
        raise RuntimeError("no share/grapnel/gdb_printers.py")
    library = next(prefix.glob("lib*/**/pkgconfig")).parent
    for toy in (folder / "toy_with_cmake/toy", folder / "toy_with_pkg_config.pc"):
        shown = run("gdb", "-nx", "-batch", "-iex", f"set auto-load safe-path {folder}", "-iex",
                    f"set auto-load scripts-directory {prefix}/share/gdb/auto-load", "-ex", "break main", "-ex", "run", "-ex", "info pretty-printer",
                    toy, LD_LIBRARY_PATH=str(library))
        if not re.search(r"^  grapnel\n    Shape\n    Tensor$", shown, re.M):
            raise RuntimeError(f"gdb does not know how to show the values of {toy}:\n{shown}")


PLANTED = """#include <stdio.h>
__attribute__((constructor)) static void ran(void) { puts("planted code ran"); }
"""


SYSTEM = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|pthread|gcc_s|stdc\+\+|z))\.so")


def one_folder(prefix, folder, compiler):
    """The folder of docs/shipping.md needs nothing but what is part of any system."""
    listed = re.search(r"^ {4}app/\n((?: {6}.*\n)+)", (ROOT / "docs/shipping.md").read_text(), re.M)[1].split()
    folder.mkdir()
    toy = HERE / "toy" / "toy.cpp"
    pc = next(prefix.glob("lib*/**/pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "grapnel", PKG_CONFIG_PATH=str(pc)).split()
    flags = [flag for flag in flags if "-rpath" not in flag]  # of the installation, which will not be there
    run(compiler, "-std=c++20", toy, "-o", folder / "program", *flags, "-Wl,-rpath,$ORIGIN,--disable-new-dtags")
    known = dict(re.findall(r"^\s(\S+) .*x86-64.* => (\S+)$", run("/sbin/ldconfig", "-p"), re.M))
    for name in listed[1:]:
        shutil.copy(next(prefix.rglob(name), known.get(name)), folder / name)
    # A module is loaded by the program, whose run path serves what it needs.
    needed = run("ldd", folder / "program") + run("ldd", folder / "libgrapnel_llvm.so", LD_LIBRARY_PATH=str(folder))
    outside = {line.split()[0] for line in needed.splitlines() if f"{folder}/" not in line and not SYSTEM.search(line)}
    unused = set(listed[1:]) - {"libgrapnel_llvm.so"} - set(re.findall(r"^\s(\S+) =>", needed, re.M))
    if outside or unused:
        raise RuntimeError(f"docs/shipping.md leaves out {sorted(outside)}, and lists {sorted(unused)} which nobody needs:\n{needed}")
    return run(folder / "program")


def planted_modules(prefix, folder, compiler):
    """Modules that others could have put where a program lies, beside its folder, or where it is run, are not loaded."""
    toy, evil = folder.with_name("toy_with_cmake") / "toy", folder / "evil.so"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "evil.c").write_text(PLANTED)
    run(compiler, "-x", "c", "-shared", "-fPIC", folder / "evil.c", "-o", evil)
    app, cwd = folder / "app", folder / "cwd"
    for place in (app, folder / "grapnel", folder / "lib", cwd, cwd / "grapnel", cwd / "lib"):
        place.mkdir(exist_ok=True)
        shutil.copy(evil, place / "libgrapnel_llvm.so")
    shutil.copy(toy, app / "toy")
    (cwd / "toy").write_text("")  # what a program finds that takes its first argument for its file
    app.chmod(0o777)
    printed = run("env", "-C", cwd, f"PATH={app}:{os.environ['PATH']}", "toy")
    if os.geteuid() == 0:
        app.chmod(0o755)
        os.chown(app / "libgrapnel_llvm.so", 65534, 65534)
        printed += run(app / "toy")
        os.chown(app / "libgrapnel_llvm.so", 0, 0)
        # A program with more rights than its caller does not take its word for what to load.
        if not os.statvfs(app).f_flag & os.ST_NOSUID and shutil.which("setpriv"):
            (app / "libgrapnel_llvm.so").unlink()
            (app / "toy").chmod(0o4755)
            for private in folder.parent, folder.parent.parent:  # the temporary folder, which is ours
                private.chmod(0o755)
            printed += run("setpriv", "--reuid=65534", "--clear-groups", app / "toy", GRAPNEL_LLVM_LIBRARY=str(evil))
    if "planted code ran" in printed:
        raise RuntimeError(f"a module that others could have planted was loaded:\n{printed}")
    app.chmod(0o755)
    return printed


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    settings = cache_of(build)
    compiler = settings["CMAKE_CXX_COMPILER"]
    shared_here = any(build.glob("grapnel/libgrapnel.so"))
    names = ("static", "shared")
    # (name, what is changed to get it from the build at hand, has LLVM)
    variants = [(names[shared_here], None, settings["GRAPNEL_LLVM"] == "ON"),
                (names[not shared_here], f"-DBUILD_SHARED_LIBS={'OFF' if shared_here else 'ON'}", settings["GRAPNEL_LLVM"] == "ON"),
                ("without LLVM", "-DGRAPNEL_LLVM=OFF", False)]
    passed, failed = 0, 0
    with tempfile.TemporaryDirectory() as name:
        for number, (variant, change, has_llvm) in enumerate(variants):
            folder = pathlib.Path(name) / str(number)
            tree, prefix = build, folder / "prefix"
            if change:
                tree = folder / "build"
                build_like(build, tree, change)
            run("cmake", "--install", tree, "--prefix", prefix)
            ways = [toy_with_cmake, toy_with_pkg_config, planted_modules]
            ways += [one_folder] if variant == "static" and has_llvm else []
            ways += [the_command] if settings["GRAPNEL_COMMAND"] == "ON" else []
            for way in ways:
                try:
                    printed = way(prefix, folder / way.__name__, compiler)
                    print(f"{variant}, {way.__name__}: {printed.strip()}")
                    wanted = "LLVM makes kernels" if has_llvm else "libgrapnel_llvm.so could not be loaded"
                    if wanted not in printed:
                        raise RuntimeError(f"the program should have said: {wanted}")
                    passed += 1
                except RuntimeError as error:
                    print(f"{variant}, {way.__name__}: {error}")
                    failed += 1
            try:
                printers(prefix, folder)
                passed += 1
            except RuntimeError as error:
                print(f"{variant}: {error}")
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
