#!/bin/sh
# Install the Debian packages of `croupier lab up --real-node` (runc, CNI plugins, a static busybox, tools for bridges and
# mount namespaces) and of some tests: promtool for the alert rules, a C compiler for a fake driver library,
# debootstrap for the Croupier image, and chromium for the tests of the page. The control plane of the lab does not need
# them, so missing packages are only reported.
set -eu

PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
missing=""

miss() {
    case " $missing " in *" $1 "*) ;; *) missing="${missing:+$missing }$1" ;; esac
}

program() {
    command -v "$1" >/dev/null 2>&1 || miss "$2"
}

static_busybox() {
    busybox=$(command -v busybox) && ! ldd "$busybox" 2>/dev/null | grep -q '=>'
}

cni_plugins() {
    for folder in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
        if [ -x "$folder/bridge" ] && [ -x "$folder/host-local" ] && [ -x "$folder/portmap" ]; then return 0; fi
    done
    return 1
}

find_missing() {
    missing=""
    program runc runc
    program ip iproute2
    program iptables-save iptables
    program mount mount
    program unshare util-linux
    program nsenter util-linux
    program gcc gcc
    program debootstrap debootstrap
    static_busybox || miss busybox-static
    cni_plugins || miss containernetworking-plugins
}

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=60 "$@" >/dev/null 2>&1
}

# Update the package lists only if the installation fails.
install_as_root() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    install "$@" || { apt-get update -qq >/dev/null 2>&1 && install "$@"; }
}

# Unpacked, not installed, because the package would start a server.
prometheus() {
    folder="${CROUPIER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/croupier}/prometheus"
    if command -v promtool >/dev/null 2>&1 || [ -x "$folder/usr/bin/promtool" ]; then return 0; fi
    command -v apt-get >/dev/null 2>&1 || return 1
    mkdir -p "$folder" && (
        cd "$folder"
        apt-get download -qq prometheus >/dev/null 2>&1 ||
            { apt-get update -qq >/dev/null 2>&1 && apt-get download -qq prometheus >/dev/null 2>&1; }
        dpkg -x prometheus_*.deb . && rm -f prometheus_*.deb
    ) >/dev/null 2>&1
}

# By itself, because some distributions do not have this package.
browser() {
    command -v chromium >/dev/null 2>&1 || install_as_root chromium
}

prometheus || echo "promtool (package prometheus) could not be installed: the tests of the alert rules are skipped."
browser || echo "chromium could not be installed: the tests of the page in a browser are skipped."
find_missing
[ -n "$missing" ] || exit 0

# shellcheck disable=SC2086 # the names are words
install_as_root $missing || true
find_missing

[ -z "$missing" ] || echo "A real node in the lab (croupier lab up --real-node) and a few tests need $missing, which could not be installed: run 'apt-get install $missing' as root. Everything else works without them."
