#!/bin/sh
# Where the kernel lets only programs with an AppArmor profile make user namespaces (Ubuntu since 23.10),
# tcptoll gets one. Elsewhere its syntax may be unknown, so nothing is written. A container has the setting of
# its machine, and often no AppArmor of its own. A copy tells later whether somebody changed it.
set -e
profile=/etc/apparmor.d/tcptoll
written=/var/lib/tcptoll/apparmor-profile
if [ "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" = 1 ] &&
    [ -d /etc/apparmor.d ] && [ ! -L "$profile" ] && { [ ! -e "$profile" ] || cmp -s "$profile" "$written"; }; then
    mkdir -p "${written%/*}"
    cp /usr/share/tcptoll/apparmor/tcptoll "$profile"
    cp "$profile" "$written"
    apparmor_parser --replace "$profile" || true
fi
# A watch that runs goes on with the new program.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart tcptoll-watch.service || true
fi
