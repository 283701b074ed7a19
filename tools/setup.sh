#!/bin/sh
# Usage: setup.sh PYTHON VENV runtime|dev
#
# Makes VENV and installs tenure into it, editable, with its run-time or also its development
# dependencies. Does nothing when that is done already. pip stays outside (`pip --python`), so
# that a Python without ensurepip goes the same way as any other.
set -eu

python=$1 venv=$2 want=$3

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

case $venv in
*[[:space:]]* | '') fail "VENV must be a path without spaces, got '$venv'" ;;
esac

"$python" -c '' 2>/dev/null ||
    fail "'$python' does not run; Python 3.11 or later is needed (or: make PYTHON=python3.12 ...)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Python 3.11 or later is needed, '$python' is $("$python" -V 2>&1) (try: make PYTHON=python3.12 ...)"

# Inside an activated environment `python` is that environment's; what counts is the Python
# beneath. A moved or copied checkout needs a new environment too: the old one points back.
identity=$("$python" -c 'import os, sys
print("%d.%d.%d" % sys.version_info[:3], sys.base_prefix, os.getcwd())')
base=$("$python" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
version=${identity%% *}

if command -v flock >/dev/null 2>&1; then
    mkdir -p "$(dirname "$venv")"
    exec 9>"$venv.lock"
    flock 9
fi

if [ "$(cat "$venv/.identity" 2>/dev/null)" != "$identity" ]; then
    if [ -d "$venv" ] && [ ! -f "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
        fail "'$venv' is there and is no virtual environment; not touching it"
    fi
    rm -rf "$venv"
fi

# What is installed follows from pyproject.toml alone, so its checksum says whether it is done.
sum=$(cksum <pyproject.toml)
installed() { [ "$(cat "$venv/.installed-$1" 2>/dev/null)" = "$sum" ]; }
if installed dev || { [ "$want" = runtime ] && installed runtime; }; then
    exit 0
fi

pip=
for candidate in "$base" "$python"; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
        pip=$candidate
        break
    fi
done
[ -n "$pip" ] || fail "pip is needed: '$python -m pip' does not run (on Debian: apt install python3-pip)"
"$pip" -c 'import sys, pip; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))' ||
    fail "pip 22.3 or later is needed: $("$pip" -m pip --version)"

printf 'setting up %s (Python %s, %s dependencies) ...\n' "$venv" "$version" "$want"
if [ ! -f "$venv/.identity" ]; then
    "$base" -m venv --without-pip "$venv" ||
        fail "'$python -m venv' failed (on Debian: apt install python3-venv)"
    printf '%s\n' "$identity" >"$venv/.identity"
fi

case $want in
runtime) what=. ;;
dev) what='.[dev]' ;;
*) fail "unknown set '$want'" ;;
esac

# pip's chatter is only of use when it fails.
if ! PIP_USER=0 "$pip" -m pip --python "$venv/bin/python" install \
    --disable-pip-version-check --no-input --editable "$what" >"$venv/.pip.log" 2>&1 9>&-; then
    tail -n 40 "$venv/.pip.log" >&2
    fail "installing failed; the whole output is in $venv/.pip.log"
fi
printf '%s\n' "$sum" >"$venv/.installed-$want"
