#!/bin/sh
# Takes away the profile that the installation wrote, unless somebody changed it, and the service.
set -e
profile=/etc/apparmor.d/tcptoll
case "$1" in
    # rpm: the new version has been installed already.
    1) exit 0 ;;
esac
if cmp -s "$profile" /usr/share/tcptoll/apparmor/tcptoll; then
    # On an upgrade the new version writes its own.
    [ "$1" = upgrade ] || apparmor_parser --remove "$profile" || true
    rm -f "$profile"
fi
if [ "$1" != upgrade ] && command -v systemctl >/dev/null; then
    now=
    [ ! -d /run/systemd/system ] || now=--now
    systemctl --no-reload disable $now tcptoll-watch.service || true
fi
