#!/bin/sh
# Usage: setup_full.sh
#
# Installs what the tests use where it is there and do without elsewhere, and says what it did:
# Debian's PgBouncer, as root. Its service is not left running; tests start one of their own.
set -eu

say() { printf 'setup-full: %s\n' "$*"; }

skipped() {
    say "PgBouncer: skipped, as $1. Its tests are skipped too; those on its double run."
    exit 0
}

PATH=$PATH:/usr/sbin:/usr/local/sbin
if command -v pgbouncer >/dev/null 2>&1; then
    say "PgBouncer: there already, $(command -v pgbouncer)"
    exit 0
fi
command -v apt-get >/dev/null 2>&1 || skipped "there is no apt-get here"
[ "$(id -u)" = 0 ] || skipped "only root may install packages"

say "PgBouncer: installing Debian's package by apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get install --yes --quiet=2 --no-install-recommends pgbouncer >/dev/null ||
    skipped "apt-get could not install it (an apt-get update may help)"
if systemctl is-active --quiet pgbouncer 2>/dev/null; then
    systemctl disable --now pgbouncer >/dev/null 2>&1
    say "PgBouncer: its service had been started by the installation, and is stopped and disabled"
fi
say "PgBouncer: installed, $(command -v pgbouncer)"
