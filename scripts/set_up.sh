#!/bin/sh
# Create .venv with what `local` (the demo), `dev` (the tests and checks) or `release` needs; do nothing where it is up to date.
# With SANDMESH_DRIVER=docker or gvisor `local` has that driver's packages, too.
# PYTHON chooses the interpreter. Everything stays in the clone, apart from pip's cache.
set -eu
cd "$(dirname "$0")/.."

extra=$1
case "$extra ${SANDMESH_DRIVER:-}" in "local docker" | "local gvisor") extra=local,docker ;; esac
venv=.venv
say() { echo "[set-up] $*"; }
fail() { echo "[set-up] $*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# The system's own interpreter first: sandboxes can always read it, and it is built with profile optimisation.
choose() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11 or newer."
        command -v "$PYTHON"
        return
    fi
    for candidate in /usr/bin/python3 /usr/bin/python3.14 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 \
        python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer was found: install one (apt-get install python3 python3-venv), or set PYTHON=/path/to/it."
}

# venv without ensurepip, which Debian ships apart, still works where the interpreter has a pip that can reach into it.
make_venv() {
    "$1" -c 'import ensurepip' 2>/dev/null && { "$1" -m venv --clear $venv; return; }
    if "$1" -m pip --version >/dev/null 2>&1 && "$1" -m venv --clear --without-pip $venv \
        && "$1" -m pip --python $venv/bin/python install --quiet pip >/dev/null 2>&1; then
        return
    fi
    package=$("$1" -c 'import sys; print("python3-venv" if sys.executable in ("/usr/bin/python3", "/bin/python3") else "python3.%d-venv" % sys.version_info[1])')
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        rm -rf $venv
        fail "$1 cannot make virtual environments. Run this as root, then try again: apt-get install -y $package"
    fi
    say "installing $package"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package"; } >/dev/null \
        || fail "that failed; run: apt-get install -y $package"
    "$1" -m venv --clear $venv
}

wanted=$( { cat pyproject.toml sdk/sandmesh/shared/version.py; echo "${PYTHON:-}"; } | sha256sum | cut -d' ' -f1)
is_current() { [ -f "$venv/.set-up-$1" ] && [ "$(cat "$venv/.set-up-$1")" = "$wanted" ]; }

# What `release` installs has all of `dev` in it, and that all of `local`.
if is_current release || is_current "$extra" || { [ "$extra" != release ] && is_current dev; }; then
    exit 0
fi

started=$(date +%s)
if [ -n "${PYTHON:-}" ] || ! new_enough $venv/bin/python || ! $venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(choose)
    say "making $venv with $python ($("$python" -c 'import platform; print(platform.python_version())'))"
    make_venv "$python"
fi
# uv takes a fraction of pip's time, but does not read pip's settings: where they name the index, or uv fails, pip installs.
install_by_uv() {
    ! $venv/bin/python -m pip config list 2>/dev/null | grep -Eq '(^|[.])index-url=' || return 1
    uv=$(command -v uv) || uv=$venv/uv/bin/uv
    [ -x "$uv" ] || $venv/bin/python -m pip install --quiet --target $venv/uv uv==0.13.9 >/dev/null 2>&1 || return 1
    "$uv" pip install --quiet --compile-bytecode --python $venv/bin/python --editable ".[$extra]" 2>/dev/null
}

say "installing what $extra needs from the package index"
install_by_uv || $venv/bin/python -m pip install --quiet --use-pep517 --editable ".[$extra]" \
    || fail "pip could not install sandmesh[$extra]; see above."
$venv/bin/python -c 'import ctypes; ctypes.CDLL("libseccomp.so.2")' 2>/dev/null \
    || fail "libseccomp.so.2 is missing. Run this as root, then try again: apt-get install -y libseccomp2"
echo "$wanted" >"$venv/.set-up-$extra"
say "ready after $(($(date +%s) - started)) s"
