package fleetctl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/plain"
)

// ShardAuto, as the name of a shard, makes the process choose a name that no other process has.
const ShardAuto = "auto"

// checkShard checks the options that name a cluster, and those of a process that shares the nodes of its fleet with others. It chooses the name of
// such a process if the user did not.
func (r *Run) checkShard() error {
	switch {
	case r.InCluster && r.Kubeconfig != "":
		return errors.New("--in-cluster and --kubeconfig name two clusters: use one")
	case r.Context != "" && r.Kubeconfig == "":
		return errors.New("--context names a cluster of a kubeconfig: it needs --kubeconfig")
	case r.Shard == "" && r.ShardNamespace != "":
		return errors.New("--shard-namespace needs --shard")
	case r.Shard == "":
		return nil
	case !r.joins():
		return errors.New("--shard needs a cluster that all shards join: name it with --kubeconfig, or use --in-cluster in a pod")
	case r.Pods > 0:
		return errors.New("--pods with --shard: each shard would create them; create a Deployment with kubectl instead")
	case r.Snapshot != "":
		return errors.New("--snapshot with --shard: each shard would create its workloads; use --template")
	}
	if r.Shard == ShardAuto {
		r.Shard = autoShard()
	}
	return nil
}

// autoShard returns a name with the host's name and a text that no other process has.
func autoShard() string {
	host, _ := os.Hostname() // without a name of the host, the random text is enough
	host = strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(host)), "-")
	host = strings.Trim(host[:min(len(host), 20)], "-")
	return cmp.Or(host, "shard") + "-" + strconv.FormatUint(rand.Uint64()>>28|1<<35, 36)
}

// socketName returns the name of the socket of a fleet or of one of its shards. A name of a fleet has no dot.
func socketName(fleet, shard string) string {
	if shard != "" {
		fleet += "." + shard
	}
	return "fleet-" + fleet + ".sock"
}

// writeShards writes the processes that share the fleet as text.
func writeShards(out io.Writer, s *fleet.ShardStatus) {
	state := ""
	if !s.Settled {
		state = "; slices move now"
	}
	if s.Free > 0 {
		state += fmt.Sprintf("; nobody holds %d slices", s.Free)
	}
	fmt.Fprintf(out, "shard\t%s: %d of %d slices; the whole fleet has %d nodes%s\n", plain.Text(s.Name), s.Slices, s.Of, s.Nodes, state)
	for _, p := range s.Shards {
		self := ""
		if p.Self {
			self = " (this one)"
		}
		fmt.Fprintf(out, "  %s\t%d slices with %d nodes; renewed %s ago%s\n", plain.Text(p.Name), p.Slices, p.Nodes, p.Renewed.Round(time.Second), self)
	}
}
