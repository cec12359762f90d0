package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-node/wherry/internal/cli/fleetctl"
)

// newFleet returns the commands of simulated nodes.
func newFleet() *cobra.Command {
	var r fleetctl.Run
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Run many simulated nodes in one process, in a cluster of their own or in one that you name",
		Long: `Run many nodes in this process. Each is a whole node agent, the same as on a real machine, over a container runtime in
memory: nothing is executed. Without --kubeconfig the command starts a control plane of its own (wherry-controlplane), and
prints the KUBECONFIG to use. It needs no root and no container runtime.

With --kubeconfig the nodes join the cluster that you name. They have the taint wherry.dev/simulated=true:NoSchedule, so that
its pods do not come to them, and the label wherry.dev/fleet. At the end the nodes and the pods on them are removed; what a
killed process left is removed by "wherry fleet clean".

A template gives groups of nodes their shapes: see docs/fleet.md. Nodes join at the pace that the API server bears.`,
		Example: `  wherry fleet --nodes 100 --pods 500
  wherry fleet --template shapes.yaml
  wherry fleet --nodes 1000 --once --within 2m
  wherry fleet --nodes 50 --kubeconfig ~/.kube/config --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.Run(cmd.Context(), cmd.ErrOrStderr()) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&r.Nodes, "nodes", 0, "how many nodes; 0: as the template says, or 10")
	fs.StringVarP(&r.Template, "template", "f", "", "file with the shapes of the nodes")
	fs.IntVar(&r.Pods, "pods", 0, "create this many pods when all nodes are Ready; the scheduler places them")
	fs.StringVarP(&r.Namespace, "namespace", "n", "default", "namespace of these pods")
	fleetName(fs, &r.Name)
	fs.StringVar(&r.Kubeconfig, "kubeconfig", "", "join the cluster of this kubeconfig; without it a control plane is started")
	fs.StringVar(&r.Context, "context", "", "context of the kubeconfig; default: its current one")
	fs.BoolVarP(&r.Yes, "yes", "y", false, "add the nodes to the cluster of --kubeconfig without being asked")
	fs.BoolVar(&r.Keep, "keep", false, "leave nodes and pods in the cluster of --kubeconfig at the end")
	fs.BoolVar(&r.NoTaint, "no-taint", false, "let pods of the cluster of --kubeconfig come to the nodes")
	fs.StringVar(&r.Identity, "identity", "impersonate", "as whom the nodes act: impersonate (each as itself) or shared (all as the user of the kubeconfig)")
	fs.BoolVar(&r.Once, "once", false, "end when all nodes are Ready and all pods Running")
	fs.DurationVar(&r.Within, "within", 0, "fail if that takes longer; 0: wait on")
	fs.StringVar(&r.DataDir, "data-dir", "", "where the control plane keeps its data; default: a directory that is removed at the end")
	fs.StringVar(&r.ControlPlane, "controlplane", "", "program of the control plane; default: wherry-controlplane beside this program, then in PATH")
	fs.Uint64Var(&r.Seed, "seed", 0, "seed of the random values in the simulated runtimes")
	fs.StringVar(&r.Socket, "socket", "", "control socket of the fleet; default: one of its name")
	fs.IntVarP(&r.Verbosity, "v", "v", 0, "log more: 1 what the fleet does, 2 what its agents do")
	cmd.AddCommand(newFleetClean())
	return cmd
}

func fleetName(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "name", "fleet", "name of the fleet, a part of the nodes' names")
}

func newFleetClean() *cobra.Command {
	var c fleetctl.Clean
	cmd := &cobra.Command{
		Use:   "clean --kubeconfig FILE",
		Short: "Remove what a fleet that was killed left in a cluster: its nodes, their leases and pods",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fs := cmd.Flags()
	fleetName(fs, &c.Name)
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	fs.StringVar(&c.Context, "context", "", "context of the kubeconfig; default: its current one")
	fs.BoolVar(&c.All, "all", false, "of all fleets, not only of the named one")
	return cmd
}
