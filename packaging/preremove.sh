#!/bin/sh
# Takes away the profile that the installation wrote, unless somebody changed it. Not on an upgrade.
set -e
profile=/etc/apparmor.d/tcptoll
case "$1" in
    upgrade | 1) exit 0 ;;
esac
if cmp -s "$profile" /usr/share/tcptoll/apparmor/tcptoll; then
    apparmor_parser --remove "$profile" || true
    rm -f "$profile"
fi
