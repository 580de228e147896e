#!/bin/sh
# Where the kernel lets only programs with an AppArmor profile make user namespaces (Ubuntu since 23.10),
# tcptoll gets one. Elsewhere its syntax may be unknown, so nothing is written. A container has the setting of
# its machine, and often no AppArmor of its own.
set -e
profile=/etc/apparmor.d/tcptoll
if [ "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" = 1 ] &&
    [ -d /etc/apparmor.d ] && [ ! -e "$profile" ] && [ ! -L "$profile" ]; then
    cp /usr/share/tcptoll/apparmor/tcptoll "$profile"
    apparmor_parser --replace "$profile" || true
fi
# A watch that runs goes on with the new program.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart tcptoll-watch.service || true
fi
