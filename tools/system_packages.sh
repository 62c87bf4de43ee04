#!/bin/sh
# Brings what a target of the Makefile needs of the system and this machine lacks:
#   PYTHON=python3 tools/system_packages.sh setup|rehearse|test
# For `setup` nothing is installed, only named. Exit 0: all is there (for `rehearse`: all that it
# cannot do without). Exit 2: something is missing; the message has the line that installs it.
set -u
cd "$(dirname "$0")/.." || exit 70
target=$1
python=${PYTHON:-python3}
list=requirements-system.txt
unpacked=.venv/system
PATH=$PATH:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 APT_LISTCHANGES_FRONTEND=none
apt_settings="-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"

stop() { # FOUND WANTED NEXT
    printf 'make %s: %s\n  wanted: %s\n  next: %s\n' "$target" "$1" "$2" "$3" >&2
    exit 2
}

# Whether a row is for this target: each needs what the smaller ones need.
concerns() {
    case $target/$1 in
    */setup | test/* | rehearse/rehearse | rehearse/box) return 0 ;;
    esac
    return 1
}

has_python() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null
}

has_program() {
    case $1 in
    python3) has_python ;;
    /*) [ -e "$1" ] ;;
    usr/*) [ -e "$unpacked/$1" ] || command -v "${1##*/}" >/dev/null ;;
    *.so.*) for file in /usr/lib/*/"$1" /usr/lib64/"$1" /usr/lib/"$1"; do
        [ -e "$file" ] && return 0
    done && return 1 ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

is_there() { # PROGRAMS, by commas
    for program in $(echo "$1" | tr , ' '); do
        has_program "$program" || return 1
    done
}

# Sets: to_install, to_unpack (package names), reasons, and whether setup itself lacks something.
look() {
    to_install='' to_unpack='' reasons='' hard=''
    while read -r package for how programs why; do
        case $package in '' | '#'*) continue ;; esac
        [ "$how" = install ] || programs=${programs%%,*} # the rest is what that one needs
        concerns "$for" && ! is_there "$programs" || continue
        case $how in
        install) to_install="$to_install $package" ;;
        unpack) to_unpack="$to_unpack $package" ;;
        esac
        [ "$target/$for" = rehearse/box ] || hard=1
        reasons="$reasons
  $package: $why"
    done <"$list"
}

# Another interpreter than the system's is its owner's: no package mends it.
check_python() {
    other="make PYTHON=/path/to/python3.11 $target"
    if ! command -v "$python" >/dev/null; then
        [ "$python" = python3 ] || stop "no $python here" "Python 3.11 or newer" "$other"
    elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        stop "$python is $("$python" -V 2>&1)" "Python 3.11 or newer" "$other"
    elif ! has_python; then
        case $(command -v "$python") in /usr/bin/python3 | /bin/python3) return ;; esac
        stop "$python has no venv module" "Python 3.11 or newer with venv and ensurepip" "$other"
    fi
}

# Sets: as_root, the words before apt-get; nothing is asked for. Fails where it may not.
find_root() {
    as_root="env DEBIAN_FRONTEND=$DEBIAN_FRONTEND"
    [ "$(id -u)" = 0 ] && return 0
    as_root="sudo -n env DEBIAN_FRONTEND=$DEBIAN_FRONTEND"
    $as_root apt-get --version >/dev/null 2>&1
}

# The one line to type.
line() {
    words="apt-get update"
    [ -z "$to_install" ] || words="$words && apt-get install -y --no-install-recommends$to_install"
    if [ "$(id -u)" = 0 ]; then
        echo "$words"
    elif command -v sudo >/dev/null; then
        echo "sudo sh -c '$words'"
    else
        echo "su -c '$words'"
    fi
}

# What is missing and may not be brought: the end, or for `make rehearse` a word about it.
give_up() { # WHY
    if [ "$target" = rehearse ] && [ -z "$hard" ]; then
        echo "make rehearse: not on this machine:$reasons
  Without these the service is verified statically. To have it proved: $(line)"
        exit 0
    fi
    stop "not on this machine:$reasons" "these packages ($1)" "$(line)"
}

unpack() { # PACKAGE
    part=$(mktemp -d "${TMPDIR:-/tmp}/system-package.XXXXXX") || return 1
    (
        set -e
        cd "$part"
        apt-get $apt_settings -o APT::Sandbox::User= download "$1" >&2
        mkdir files
        dpkg-deb --fsys-tarfile "$1"_*.deb | tar -x -C files
    ) && mkdir -p "$unpacked" && while read -r package _ how programs _; do
        [ "$package" = "$1" ] && [ "$how" = unpack ] || continue
        for program in $(echo "$programs" | tr , ' '); do
            [ -e "$part/files/$program" ] || continue
            mkdir -p "$unpacked/${program%/*}"
            rm -rf "${unpacked:?}/$program" "$unpacked/$program.part"
            cp -R "$part/files/$program" "$unpacked/$program.part" &&
                mv "$unpacked/$program.part" "$unpacked/$program"
        done
    done <"$list"
    code=$?
    rm -rf "$part"
    return $code
}

check_python
look
[ -n "$to_install$to_unpack" ] || exit 0
command -v apt-get >/dev/null ||
    give_up "by these names on Debian; this system has no apt-get, its own installer has them"
[ "$target" != setup ] || give_up "make setup installs nothing on the system"
if [ -n "$to_install" ]; then
    find_root || give_up "you are not root, and sudo is missing or wants a password"
    echo "installing on this machine, about a minute:$reasons"
    $as_root apt-get $apt_settings update ||
        echo "apt-get update failed; going on with the lists that are here" >&2
    log=$(mktemp) || exit 70
    $as_root apt-get $apt_settings install -y --no-install-recommends --no-remove \
        $to_install >"$log" 2>&1 || { tail -n 20 "$log" >&2 && rm "$log" && give_up "apt-get failed, see above"; }
    rm "$log"
elif ! apt-cache policy $to_unpack 2>/dev/null | grep -q 'Candidate: [^(]'; then
    find_root || give_up "the package lists are empty, and you are not root"
    $as_root apt-get $apt_settings update || true
fi
for package in $to_unpack; do
    echo "unpacking into $unpacked, nothing is started: $package"
    unpack "$package" || give_up "$package could not be downloaded, see above"
done
check_python
look
[ -z "$to_install$to_unpack" ] || give_up "they were installed just now, and are still not found"
