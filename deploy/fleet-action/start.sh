# shellcheck shell=bash
# Starts a fleet on the runner of a job and waits until it is as expected. action.yml runs it and has the inputs as FLEET_* variables.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

check_name
[[ $FLEET_NODES =~ ^[0-9]{0,6}$ ]] || fail "input nodes: use a number"
[[ $FLEET_PODS =~ ^[0-9]{1,7}$ ]] || fail "input pods: use a number"
[[ $FLEET_WITHIN =~ ^[0-9]+(\.[0-9]+)?(ms|s|m|h)([0-9]+(s|m))*$ ]] || fail "input within: use a time such as 90s or 5m"
find_wherry
if [[ -n $FLEET_VERSION ]]; then
	has=$("$wherry" version) || fail "input wherry: the program does not say its version"
	[[ " ${has%%$'\n'*} " == *" $FLEET_VERSION "* ]] || fail "input version: the program is another version: ${has%%$'\n'*}"
fi

dir=$RUNNER_TEMP/wherry-fleet-$FLEET_NAME
[[ ! -e $dir/started ]] || fail "a fleet of this name was started before in this job: choose another input name"
mkdir -p -- "$dir"
log=$dir/fleet.log result=$dir/result.json kubeconfig=$dir/data/admin.kubeconfig

# An input with lines becomes several arguments. --option=value, so that a value that begins with a hyphen is no option.
args=(fleet "--name=$FLEET_NAME" "--pods=$FLEET_PODS" "--data-dir=$dir/data")
expectations=()
[[ -z $FLEET_NODES ]] || args+=("--nodes=$FLEET_NODES")
[[ -z $FLEET_TEMPLATE ]] || args+=("--template=$FLEET_TEMPLATE")
[[ -z $FLEET_SCENARIO ]] || args+=("--scenario=$FLEET_SCENARIO")
while IFS= read -r line; do
	[[ -z ${line//[[:space:]]/} ]] || args+=("--rules=$line")
done <<<"$FLEET_RULES"
while IFS= read -r line; do
	[[ -z ${line//[[:space:]]/} ]] || expectations+=("$line")
done <<<"$FLEET_EXPECT"
if [[ ${#expectations[@]} -eq 0 ]]; then
	expectations=(nodes=ready)
	[[ $FLEET_PODS =~ ^0+$ ]] || expectations+=(pods=running)
fi
for line in "${expectations[@]}"; do
	args+=("--expect=$line") # so that the command refuses a wrong expectation before it starts anything
done

# A fleet of this name that an earlier job left on this machine would answer in place of the new one.
if timeout 35 "$wherry" fleet get "--name=$FLEET_NAME" >/dev/null 2>&1; then
	fail "a fleet of this name runs already on this machine: end it with wherry fleet stop --name $FLEET_NAME, or choose another input name"
fi

began=$SECONDS
# The fleet goes on after this step: it has a session of its own, and no file of the step is open in it.
setsid "$wherry" "${args[@]}" >"$log" 2>&1 </dev/null &
fleet=$!
: >"$dir/started"

# The fleet answers when its control plane is ready. If that fails, it ends.
until timeout 35 "$wherry" fleet get "--name=$FLEET_NAME" >"$dir/state" 2>/dev/null; do
	if ! kill -0 "$fleet" 2>/dev/null; then
		quiet "$log"
		rm -f -- "$dir/started"
		fail "the fleet did not start: its last lines are above"
	fi
	sleep 0.2
done

dirname -- "$wherry" >>"$GITHUB_PATH"
printf 'KUBECONFIG=%s\n' "$kubeconfig" >>"$GITHUB_ENV"
printf '%s\n' "kubeconfig=$kubeconfig" "name=$FLEET_NAME" "log=$log" "result=$result" >>"$GITHUB_OUTPUT"

status=0
"$wherry" fleet expect "--name=$FLEET_NAME" "--within=$FLEET_WITHIN" -o json -- "${expectations[@]}" >"$result" 2>"$dir/unmet" || status=$?

# The table of the summary: each expectation with what is the case, then the state of the fleet.
{
	printf '### Fleet %s\n\n' "$FLEET_NAME"
	if [[ $status -eq 0 ]]; then printf 'As expected'; else printf 'Not as expected'; fi
	printf ' %d s after the start.\n\n| expectation | holds | now |\n|---|---|---|\n' $((SECONDS - began))
	outcomes "$result"
} >>"$GITHUB_STEP_SUMMARY"
if "$wherry" fleet get "--name=$FLEET_NAME" >"$dir/state"; then
	state "$dir/state"
fi

quiet "$log"
if [[ $status -ne 0 ]]; then
	why=$(tail -n 1 -- "$dir/unmet")
	fail "after at most $FLEET_WITHIN: ${why#Error: }"
fi
