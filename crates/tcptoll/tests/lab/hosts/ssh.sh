#!/bin/sh
# What ssh does, without a login: runs a command on a host of the test. Each run leaves a line in $HOSTS_LOG.
while [ "$1" = -p ]; do shift 2; done
case "$1" in
client) pid=$HOSTS_CLIENT ;;
server) pid=$HOSTS_SERVER ;;
*) echo "ssh: no host $1" >&2; exit 255 ;;
esac
shift
[ -z "$HOSTS_LOG" ] || echo "$$" >>"$HOSTS_LOG"
# $HOSTS_BEFORE: what a login shell prints. $HOSTS_WITHIN: a program that runs the command.
exec nsenter --target "$pid" $HOSTS_ENTER ${HOSTS_WITHIN:-} sh -c "${HOSTS_BEFORE:-:}; $*"
