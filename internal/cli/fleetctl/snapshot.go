package fleetctl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/wherry-node/wherry/agent/fleet"
)

// Snapshot is the command `wherry fleet snapshot`.
type Snapshot struct {
	Kubeconfig, Context string
}

// Run writes the snapshot of the cluster to out, and a line about it to said.
func (s *Snapshot) Run(ctx context.Context, out, said io.Writer) error {
	if s.Kubeconfig == "" {
		return errors.New("name the cluster with --kubeconfig")
	}
	client, err := loadKubeconfig(s.Kubeconfig, s.Context)
	if err != nil {
		return err
	}
	data, taken, err := fleet.TakeSnapshot(ctx, client)
	if err != nil {
		return err
	}
	if _, err := out.Write(data); err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	fmt.Fprintf(said, "%s: %d nodes in %d groups, %d pods in %d workloads\n", client.Host, taken.Nodes, taken.Groups, taken.Pods, taken.Workloads)
	return nil
}

// readSnapshot reads the file of --snapshot into in. It checks that no other option contradicts the file.
func (r *Run) readSnapshot(in *input) error {
	switch {
	case r.Template != "" || r.Nodes != 0 || r.Pods != 0:
		return errors.New("--snapshot says which nodes and pods there are: leave out --template, --nodes and --pods, and use --scale")
	case r.joins():
		return errors.New("--snapshot creates namespaces and workloads, so it needs a control plane of its own: leave out --kubeconfig and --in-cluster")
	}
	data, err := readBounded(r.Snapshot, fleet.MaxSnapshot)
	if err != nil {
		return fmt.Errorf("--snapshot: %w", err)
	}
	s, err := fleet.ParseSnapshot(r.Snapshot, data)
	if err != nil {
		return err
	}
	if err := s.Check(r.Scale); err != nil {
		return fmt.Errorf("--scale: %w", err)
	}
	in.groups, in.workloads, r.Pods = s.Scaled(r.Scale), s.Workloads, s.Running(r.Scale)
	return nil
}
