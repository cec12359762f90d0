package fleetctl

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// defaultName is the name of a fleet whose user gives it none.
const defaultName = "fleet"

// listener is a fleet, or one of the processes that share one, with a control socket on this machine.
type listener struct{ fleet, shard, socket string }

// runningIn returns the processes that listen at a socket in dir, sorted by fleet and shard. A process that was killed leaves its socket behind, at which
// nobody listens.
func runningIn(dir string) []listener {
	found, err := filepath.Glob(filepath.Join(dir, socketName("*", "")))
	if err != nil { // the directory's name has characters of a pattern
		return nil
	}
	before, after, _ := strings.Cut(socketName("*", ""), "*")
	var all []listener
	for _, path := range found {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), before), after)
		p := listener{socket: path}
		p.fleet, p.shard, _ = strings.Cut(name, ".")
		if listens(context.Background(), path) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b listener) int { return cmp.Or(cmp.Compare(a.fleet, b.fleet), cmp.Compare(a.shard, b.shard)) })
	return all
}

// find returns the socket in dir of the process that a user means by the name of a fleet and of a shard. Without a name it is the fleet "fleet", or
// else the only one that runs on this machine; without a shard, the only process of the fleet on this machine. If several could be meant, or if only
// others run than the one that is named, the error says which there are.
func find(dir, name, shard string) (path string, err error) {
	all := runningIn(dir)
	called := func(name string) []listener {
		return slices.DeleteFunc(slices.Clone(all), func(p listener) bool { return p.fleet != name || shard != "" && p.shard != shard })
	}
	meant := called(cmp.Or(name, defaultName))
	if name == "" && len(meant) == 0 {
		meant = slices.DeleteFunc(slices.Clone(all), func(p listener) bool { return shard != "" && p.shard != shard })
	}
	switch {
	case len(meant) == 0 && len(all) == 0:
		return filepath.Join(dir, socketName(cmp.Or(name, defaultName), shard)), nil // nobody listens there, and who asks says so
	case len(meant) == 0:
		return "", fmt.Errorf("%w under this name; this machine runs %s", errNone, texts(all))
	case mixed(meant):
		return "", fmt.Errorf("this machine runs %s: choose one with --name", texts(meant))
	case len(meant) > 1 && meant[0].shard != "": // a process that is no shard has the empty name, and so comes first
		return "", fmt.Errorf("this machine runs %s: choose one with --shard", texts(meant))
	}
	return meant[0].socket, nil
}

// mixed reports whether the processes are of several fleets.
func mixed(all []listener) bool {
	return slices.ContainsFunc(all, func(p listener) bool { return p.fleet != all[0].fleet })
}

// texts names processes for a message.
func texts(all []listener) string {
	var out []string
	for _, p := range all {
		if p.shard == "" {
			out = append(out, "the fleet "+p.fleet)
		} else {
			out = append(out, "the shard "+p.shard+" of the fleet "+p.fleet)
		}
	}
	return strings.Join(out, " and ")
}

// listens reports whether a process accepts connections on a socket.
func listens(ctx context.Context, path string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
