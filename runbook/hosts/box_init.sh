#!/bin/sh
# PID 1 of a box's namespaces: lays the root, moves into it and becomes systemd.
#   box_init.sh ROOT STATE [SOURCE TARGET]...    each SOURCE is bound read-only to TARGET
# ROOT is `overlay`, or `copy` for an ordinary user, who has no right to lay one over files of root:
# a copy of /etc, an empty /var, and this machine's other folders read-only.
# Runs in a mount namespace of its own; RUNBOOK_CGROUP names the cgroup made for this box.
set -eu

# The cgroup namespace must start at `inner`, so it is entered only once this process is there.
if [ -n "${RUNBOOK_CGROUP-}" ]; then
    printf 0 >"$RUNBOOK_CGROUP/inner/cgroup.procs"
    unset RUNBOOK_CGROUP
    exec unshare --cgroup -- sh "$0" "$@"
fi

# What holds in this user's namespace must be repeated, else the kernel refuses.
read_only() {
    options=$(findmnt -nro VFS-OPTIONS --mountpoint "$1" | tail -n 1)
    mount -o "remount,bind,ro${options#r[wo]}" "$1"
}

how=$1
cd "$2"
shift 2

mount --make-rprivate /
if [ "$how" = overlay ]; then
    # Relative paths: an overlay option can hold neither a comma nor a colon.
    mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
else
    mount --bind upper root
    for path in /*; do
        name=root$path
        if [ -L "$path" ]; then
            [ -L "$name" ] || cp -P "$path" "$name"
        elif [ -d "$path" ]; then
            mkdir -p "$name"
            case $path in /etc | /var | /dev | /proc | /run | /sys | /tmp) ;; *)
                mount --rbind "$path" "$name"
                read_only "$PWD/$name"
                ;;
            esac
        fi
    done
    if ! [ -e made ]; then
        # What of it is not for this user stays away.
        cp -rP --preserve=mode /etc/. root/etc/ 2>/dev/null || true
        mkdir -p root/var/cache root/var/lib root/var/tmp
        chmod 1777 root/var/tmp
    fi
fi

# The first boot: none of this machine's enabled units, journal or names. Removing through the
# overlay leaves the machine as it is and the box with empty folders of its own.
if ! [ -e made ]; then
    for folder in etc/systemd/system var/log/journal; do
        rm -rf "root/$folder"
        mkdir -p "root/$folder"
    done
    rm -f root/etc/machine-id root/etc/hostname
    tr -d - </proc/sys/kernel/random/uuid >root/etc/machine-id
    echo box >root/etc/hostname
    : >made
fi

cd root
mount -t proc -o nosuid,nodev,noexec proc proc
mount --bind proc/sys proc/sys
read_only "$PWD/proc/sys"
if [ -e proc/sysrq-trigger ]; then mount --bind /dev/null proc/sysrq-trigger; fi
if [ "$how" = overlay ]; then
    mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
else
    mount --rbind /sys sys
fi
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp

mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr

# Each boot has an id of its own, else `journalctl --list-boots` knows one boot only.
cat proc/sys/kernel/random/uuid >run/boot-id
mount --bind run/boot-id proc/sys/kernel/random/boot_id

# Generators would start what this machine has configured: fstab, SysV scripts, databases.
mkdir run/nothing
for folder in usr/lib/systemd/system-generators usr/local/lib/systemd/system-generators \
    etc/systemd/system-generators; do
    if [ -d "$folder" ]; then mount --bind run/nothing "$folder"; fi
done
mkdir -p run/systemd/system run/systemd/journald.conf.d
masked="systemd-remount-fs.service systemd-journald-audit.socket"
# With one user id neither of these can become the user it runs as.
[ "$how" = overlay ] || masked="$masked dbus.service dbus.socket systemd-logind.service"
for unit in $masked; do
    ln -s /dev/null "run/systemd/system/$unit"
done
printf '[Journal]\nStorage=persistent\nAudit=\nSystemMaxUse=256M\n' >run/systemd/journald.conf.d/box.conf

mkdir run/outside
pivot_root . run/outside
cd /
while [ $# -gt 0 ]; do
    # Another name for what was bound before, through a link that shows here too.
    if [ "$1" != "$2" ] && [ -e "$2" ]; then
        shift 2
        continue
    fi
    if [ -d "/run/outside$1" ]; then
        mkdir -p "$2"
    else
        mkdir -p "$(dirname "$2")"
        [ -e "$2" ] || : >"$2"
    fi
    mount --bind "/run/outside$1" "$2"
    read_only "$2"
    shift 2
done
umount -l /run/outside
rmdir /run/outside

# As a container manager does: without it the credentials of a unit are mounted where no unit
# sees them.
mount --make-rshared /

# Without these capabilities nothing in the box can set the clock or load modules.
exec env -i container=box LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio,-audit_control \
    /lib/systemd/systemd --system --unit=multi-user.target --show-status=no --log-target=journal </dev/null
