#!/bin/sh
# Before the files go. deb: "remove", or "upgrade" when another version comes; rpm: 0, or 1.
# The agent stops, containers go on.
set -e
case "$1" in
remove) action=stop ;;
0) action="disable --now" ;; # rpm has no purge
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl $action @UNIT@ || echo "@UNIT@ did not stop: systemctl status @UNIT@" >&2
