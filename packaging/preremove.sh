#!/bin/sh
# Takes away the profile that the installation wrote, unless somebody changed it, and the service.
set -e
profile=/etc/apparmor.d/tcptoll
written=/var/lib/tcptoll/apparmor-profile
# On an upgrade the new version looks after both: deb says so, rpm says that one version stays.
case "$1" in
    upgrade | 1) exit 0 ;;
esac
if [ ! -L "$profile" ] && cmp -s "$profile" "$written"; then
    apparmor_parser --remove "$profile" || true
    rm -f "$profile"
fi
rm -f "$written"
rmdir "${written%/*}" 2>/dev/null || true
if command -v systemctl >/dev/null; then
    now=
    [ ! -d /run/systemd/system ] || now=--now
    systemctl --no-reload disable $now tcptoll-watch.service || true
fi
