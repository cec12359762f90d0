#!/bin/sh
# The package manager runs this script before it removes the files. Argument of deb: "remove", or "upgrade" before another version
# is installed. Argument of rpm: 0, or 1 before another version is installed.
# It stops the agent. Containers continue to run.
set -e
case "$1" in
remove) action=stop ;;
0) action="disable --now" ;; # rpm has no purge
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl $action @UNIT@ || echo "@UNIT@ did not stop: systemctl status @UNIT@" >&2
