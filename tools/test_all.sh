#!/bin/sh
# Usage: PYTHONS="python3.11 ..." POSTGRESES="/usr/lib/postgresql/15/bin ..." test_all.sh [PYTEST ARGUMENT...]
#
# Runs the test suite on each of PYTHONS that is here, each in an environment of its own, and the
# tests that need a PostgreSQL once more on each of POSTGRESES; goes on after a failure; the summary
# and the exit status say what failed.
set -u

failed= passed= skipped=
for python in $PYTHONS; do
    # A name may exist and not run (a version manager's shim), so ask it.
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
    if [ -z "$version" ]; then
        skipped="$skipped $python"
        continue
    fi
    printf '\n--- Python %s\n' "$version"
    if "${MAKE:-make}" pytest PYTHON="$python" VENV=".venv-$version" ARGS="$*"; then
        passed="$passed $version"
    else
        failed="$failed $version"
    fi
done

for programs in ${POSTGRESES:-}; do
    version=$("$programs/postgres" --version 2>/dev/null | sed 's/.*) \([0-9.]*\).*/PostgreSQL-\1/')
    if [ -z "$version" ]; then
        skipped="$skipped $programs"
        continue
    fi
    printf '\n--- %s\n' "$version"
    if TENURE_TEST_POSTGRES="$programs" "${MAKE:-make}" pytest \
        ARGS="tests/engines tests/chaos -k 'postgres or pooled' $*"; then
        passed="$passed $version"
    else
        failed="$failed $version"
    fi
done

printf '\npassed:%s\nfailed:%s\nnot here:%s\n' "${passed:- none}" "${failed:- none}" "${skipped:- none}"
[ -z "$failed" ] && [ -n "$passed" ]
