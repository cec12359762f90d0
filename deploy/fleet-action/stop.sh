# shellcheck shell=bash
# Ends a fleet that start.sh has started. stop/action.yml runs it.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

check_name
dir=$RUNNER_TEMP/wherry-fleet-$FLEET_NAME
if [[ ! -e $dir/started ]]; then
	echo "no fleet $FLEET_NAME was started in this job"
	exit 0
fi
find_wherry
if ! timeout 35 "$wherry" fleet get "--name=$FLEET_NAME" >"$dir/state"; then
	quiet "$dir/fleet.log"
	fail "the fleet $FLEET_NAME has ended before: its last lines are above"
fi
printf '### Fleet %s at its end\n' "$FLEET_NAME" >>"$GITHUB_STEP_SUMMARY"
state "$dir/state"
timeout 300 "$wherry" fleet stop "--name=$FLEET_NAME" || fail "the fleet $FLEET_NAME does not end"
quiet "$dir/fleet.log"
rm -rf -- "$dir/data" "$dir/started"
