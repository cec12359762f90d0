package userns

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// owner is the user whose subordinate IDs the pods get.
const owner = "kubelet"

// Subordinate returns the subordinate IDs of user kubelet, as getsubids prints them. If there is no such user or no getsubids, it returns
// the empty Pool, which means the default. A user without IDs is an error: getsubids may use a service that is not reachable, and the
// default range could then overlap with IDs of other users.
func Subordinate() (Pool, error) {
	if _, err := user.Lookup(owner); err != nil {
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			return Pool{}, nil
		}
		return Pool{}, fmt.Errorf("look up user %s: %w", owner, err)
	}
	tool, err := exec.LookPath("getsubids")
	if err != nil {
		return Pool{}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	users, err := exec.CommandContext(ctx, tool, owner).Output()
	if err != nil {
		return Pool{}, fmt.Errorf("user %s exists, but getsubids has no subordinate user IDs for it (give it some in /etc/subuid): %w", owner, err)
	}
	groups, err := exec.CommandContext(ctx, tool, "-g", owner).Output()
	if err != nil {
		return Pool{}, fmt.Errorf("user %s exists, but getsubids has no subordinate group IDs for it (give it some in /etc/subgid): %w", owner, err)
	}
	return parse(string(users), string(groups))
}

// parse parses the output of getsubids: "0: kubelet 65536 7208960".
func parse(users, groups string) (Pool, error) {
	if users != groups {
		return Pool{}, fmt.Errorf("user %s has different subordinate user IDs (%q) and group IDs (%q): make its lines in /etc/subuid and /etc/subgid the same", owner, users, groups)
	}
	lines := strings.Split(strings.TrimSpace(users), "\n")
	fields := strings.Fields(lines[0])
	if len(lines) != 1 || len(fields) != 4 {
		return Pool{}, fmt.Errorf("user %s must have exactly one range of subordinate IDs; getsubids prints %q", owner, users)
	}
	first, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return Pool{}, fmt.Errorf("read first subordinate ID of user %s: %w", owner, err)
	}
	count, err := strconv.ParseUint(fields[3], 10, 33)
	if err != nil || count == 0 {
		return Pool{}, fmt.Errorf("read number of subordinate IDs of user %s: getsubids prints %q", owner, users)
	}
	return Pool{First: uint32(first), Count: count}, nil
}
