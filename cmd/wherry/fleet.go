package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/fleetctl"
	"github.com/wherry-node/wherry/internal/cli/fleettop"
	"github.com/wherry-node/wherry/internal/cli/podctl"
)

// newFleet returns the command `wherry fleet`, which runs and controls many simulated nodes.
func newFleet() *cobra.Command {
	var r fleetctl.Run
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Run many simulated nodes, in a cluster of their own or in one that you name",
		Long: `Run many nodes in this process. Each node is a whole node agent, the same as on a real machine, with a container runtime
in memory that executes nothing. Without --kubeconfig the command starts a control plane of its own (wherry-controlplane), and
prints the KUBECONFIG to use. It needs no root and no container runtime.

With --kubeconfig the nodes join the cluster that you name. They have the taint wherry.dev/simulated=true:NoSchedule, so that
the cluster's own pods are not placed on them, and the label wherry.dev/fleet. At its end the command removes the nodes and
the pods on them. After a kill, "wherry fleet clean" removes them.

With --virtual the fleet runs in virtual time on an API server in memory, without any other process, for the given span, as fast as
the machine goes. The same --seed gives the same --record, byte by byte.

With --shard several processes share the nodes of one fleet. When one ends or dies, the others run its nodes. They leave the
nodes in the cluster at their end.

A template gives groups of nodes their shapes: see docs/fleet.md. Nodes join as fast as the API server can take them.`,
		Example: `  wherry fleet --nodes 100 --pods 500
  wherry fleet --template shapes.yaml
  wherry fleet --nodes 1000 --once --within 2m
  wherry fleet --nodes 100 --pods 500 --expect pods=running --expect 'leases.p99<=1s' --within 60s --once -o json
  wherry fleet --nodes 100 --pods 500 --scenario faults.yaml
  wherry fleet --nodes 50 --kubeconfig ~/.kube/config --yes
  wherry fleet --name big --nodes 3000 --shard auto --kubeconfig ~/.kube/config --yes
  wherry fleet --snapshot cluster.yaml --scale 10
  wherry fleet --virtual 1h --nodes 100 --pods 500 --scenario faults.yaml --record a.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.CheckVirtual(cmd.Flags().Changed); err != nil {
				return err
			}
			if r.Virtual > 0 {
				// On one processor, goroutines that are due at the same instant of virtual time run in the same order each time.
				runtime.GOMAXPROCS(1)
			}
			r.Result = cmd.OutOrStdout()
			return r.Run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&r.Nodes, "nodes", 0, "how many nodes; 0: as the template says, or 10 without a template")
	fs.StringVarP(&r.Template, "template", "f", "", "file with the shapes of the nodes")
	fs.StringVar(&r.Snapshot, "snapshot", "", "file of wherry fleet snapshot: imitate the nodes and pods of that cluster")
	fs.IntVar(&r.Scale, "scale", 1, "of --snapshot: this many times as many nodes and pods")
	fs.StringVar(&r.Scenario, "scenario", "", "file with faults that happen while the fleet runs")
	fs.StringArrayVar(&r.Rules, "rules", nil, "file that says what containers do and how images are pulled; may be repeated: see docs/fleet-rules.md")
	fs.IntVar(&r.Pods, "pods", 0, "create this many pods when all nodes are Ready; the scheduler places them")
	fs.StringVarP(&r.Namespace, "namespace", "n", "default", "namespace of these pods; without --kubeconfig it is created")
	fleetName(fs, &r.Name)
	fs.StringVar(&r.Kubeconfig, "kubeconfig", "", "join the cluster of this kubeconfig; without it a control plane is started")
	fs.StringVar(&r.Context, "context", "", "context of the kubeconfig; default: its current one")
	fs.BoolVar(&r.InCluster, "in-cluster", false, "join the cluster of the pod in which the command runs, as the pod's service account")
	fs.StringVar(&r.Shard, "shard", "", "share the nodes with other processes of the same fleet: the name of this process, or auto; see docs/fleet.md")
	fs.StringVar(&r.ShardNamespace, "shard-namespace", "", "of --shard: namespace of the leases with which the processes share the nodes (default \"kube-system\")")
	fs.BoolVarP(&r.Yes, "yes", "y", false, "add the nodes to the cluster of --kubeconfig without being asked")
	fs.BoolVar(&r.Keep, "keep", false, "leave nodes and pods in the cluster of --kubeconfig at the end")
	fs.BoolVar(&r.NoTaint, "no-taint", false, "do not taint the nodes, so that the scheduler may place any pod of the cluster of --kubeconfig on them")
	fs.StringVar(&r.Identity, "identity", "impersonate", "the nodes' user: impersonate (each node as itself), certificate (the same, with a certificate that the cluster signs) or shared (all as the user of the kubeconfig)")
	fs.BoolVar(&r.OwnWatches, "own-watches", false, "each node watches its objects itself, as real nodes do; otherwise all share one watch")
	fs.BoolVar(&r.Storage, "storage", false, "make and attach the volumes of the template's CSI drivers in the cluster of --kubeconfig, too")
	fs.BoolVar(&r.NoServe, "no-serve", false, "serve no HTTPS API for the nodes: a node needs less memory, and kubectl logs, exec and top do not work")
	fleetExpect(fs, &r.Expect, &r.Hold, &r.Output)
	fs.BoolVar(&r.Once, "once", false, "end when the expectations hold; without any: when all nodes are Ready and all pods Running")
	fs.DurationVar(&r.Within, "within", 0, "fail with exit status 3 if that takes longer, or if the fleet is ended before; 0: no limit")
	fs.StringVar(&r.DataDir, "data-dir", "", "where the control plane keeps its data; default: a directory that is removed at the end")
	fs.StringVar(&r.ControlPlane, "controlplane", "", "program of the control plane; default: wherry-controlplane beside this program, then in PATH")
	fs.Uint64Var(&r.Seed, "seed", 0, "seed of the random values in the simulated runtimes; with --virtual of all random values")
	fs.DurationVar(&r.Virtual, "virtual", 0, "run the fleet on an API server in memory for this much virtual time, as fast as the machine goes, and print the result; see docs/fleet.md")
	fs.StringArrayVar(&r.Manifests, "manifest", nil, "of --virtual: file with pods, config maps and secrets to create when all nodes are Ready; may be repeated")
	fs.StringVar(&r.Metrics, "metrics", "", "serve metrics for Prometheus at this address, for example 127.0.0.1:9095, path /metrics; default: none")
	fs.StringVar(&r.Record, "record", "", "write each change of nodes and pods to this file, for wherry fleet compare; default: none")
	fs.StringVar(&r.Socket, "socket", "", "control socket of the fleet; default: a socket with the fleet's name")
	fs.IntVarP(&r.Verbosity, "v", "v", 0, "verbosity of the log: 1 also the fleet's actions, 2 also those of its agents")
	cmd.AddCommand(newFleetGet(), newFleetTop(), newFleetScale(), newFleetApply(), newFleetExpect(), newFleetFault(), newFleetHeal(), newFleetStop(), newFleetClean(), newFleetSnapshot(), newFleetCompare())
	return cmd
}

func fleetName(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "name", "fleet", "name of the fleet, a part of the nodes' names")
}

func newFleetClean() *cobra.Command {
	var c fleetctl.Clean
	cmd := &cobra.Command{
		Use:   "clean --kubeconfig FILE",
		Short: "Remove what a killed fleet left in a cluster: its nodes, their leases and pods, what let them get certificates",
		Long: `Remove what a fleet left in a cluster that was killed or had --keep: its nodes, their leases and pods, what let them get certificates.
The command removes nothing while the fleet runs, that is, while one of its nodes renews its lease. If a lease was renewed a moment ago, or
a node does not count as lost yet, it looks for 15 s whether that happens again.`,
		Args: cobra.NoArgs,
		RunE: finishing(func(cmd *cobra.Command, _ []string) error {
			return c.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	fs := cmd.Flags()
	fleetName(fs, &c.Name)
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	fs.StringVar(&c.Context, "context", "", "context of the kubeconfig; default: its current one")
	fs.StringVar(&c.ShardNamespace, "shard-namespace", "", "namespace of the leases of fleets with --shard; default: all, or kube-system if the user may not list leases in all")
	fs.BoolVar(&c.All, "all", false, "of all fleets, not only of the named one")
	fs.BoolVar(&c.Force, "force", false, "also while the nodes renew their leases, so that their fleet seems to run; not while a shard runs")
	return cmd
}

func newFleetCompare() *cobra.Command {
	var c fleetctl.Compare
	cmd := &cobra.Command{
		Use:   "compare FILE FILE",
		Short: "Compare what happened in two runs: files of wherry fleet --record",
		Long: `Compare two runs of a fleet, recorded with "wherry fleet --record FILE". Compared is what became of each node and of the pods of each
workload: their last state, their restarts and the reason of their failure. The times are printed beside each other and not compared.

The exit status is 0 if the runs had the same outcome, 3 if they differ, and 1 after an error.`,
		Example: `  wherry fleet --nodes 100 --pods 500 --scenario faults.yaml --record a.jsonl
  wherry fleet compare a.jsonl b.jsonl`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := c.Run(cmd.OutOrStdout(), args[0], args[1])
			if errors.Is(err, fleetctl.ErrDiffers) {
				return podctl.ExitStatus(exitUnmet)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&c.States, "states", false, "compare also each state on the way, not only the last one")
	cmd.Flags().StringVarP(&c.Output, "output", "o", "", "json; default: text")
	return cmd
}

func newFleetSnapshot() *cobra.Command {
	var s fleetctl.Snapshot
	cmd := &cobra.Command{
		Use:   "snapshot --kubeconfig FILE > cluster.yaml",
		Short: "Write the shape of a cluster to a file: its nodes and pods, without what is confidential",
		Long: `Write the nodes and pods of a cluster to standard output. "wherry fleet --snapshot FILE --scale N" imitates the cluster with N times
as many simulated nodes and pods. Nodes that are alike become one group, pods with the same owner and spec one workload.

The file has names, labels, images, resources and scheduling rules. It has no Secrets, ConfigMaps, environment variables, commands,
annotations, volumes or probes. The command only reads from the cluster.`,
		Example: `  wherry fleet snapshot --kubeconfig ~/.kube/config > cluster.yaml
  wherry fleet --snapshot cluster.yaml --scale 10`,
		Args: cobra.NoArgs,
		RunE: finishing(func(cmd *cobra.Command, _ []string) error {
			return s.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&s.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	fs.StringVar(&s.Context, "context", "", "context of the kubeconfig; default: its current one")
	return cmd
}

// fleetSocket adds the flags with which a command finds a running fleet: its name or its control socket.
func fleetSocket(fs *pflag.FlagSet, c *fleetctl.Client) {
	fs.StringVar(&c.Name, "name", "", "name of the fleet; default: fleet, or the only one that runs on this machine")
	fs.StringVar(&c.Shard, "shard", "", "the process to ask, if several share the fleet; default: the only one on this machine")
	fs.StringVar(&c.Socket, "socket", "", "control socket of the fleet; default: a socket with the fleet's name")
}

func newFleetGet() *cobra.Command {
	var g fleetctl.Get
	cmd := &cobra.Command{
		Use: "get", Short: "Print the state of a running fleet: nodes, pods, leases, memory", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fleetSocket(cmd.Flags(), &g.Client)
	cmd.Flags().BoolVar(&g.Nodes, "nodes", false, "also each node")
	cmd.Flags().StringVarP(&g.Output, "output", "o", "", "json; default: a table")
	return cmd
}

func newFleetTop() *cobra.Command {
	o := fleettop.Top{Getenv: os.Getenv}
	cmd := &cobra.Command{
		Use: "top", Short: "Show a running fleet live: nodes, pods, rates, leases, requests, memory, faults", Args: cobra.NoArgs,
		Long: `Show a running fleet on the whole terminal: its nodes by state and its pods by phase, how many pods start and go in a second, how late
leases are renewed, the requests to the API server, memory and CPU, and lists of the nodes that need attention, of the groups, and of the faults.
Pods to start, nodes that join or leave, and scenarios show their progress.

Keys: q or Ctrl-C ends, p pauses, tab and the arrows choose and scroll the list, Ctrl-Z suspends. With NO_COLOR there are no colours, and in a
locale other than UTF-8 only ASCII characters. Without a terminal, with TERM=dumb and with --count the state is printed as text.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.Run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	fleetSocket(cmd.Flags(), &o.Client)
	cmd.Flags().DurationVar(&o.Every, "interval", time.Second, "how often")
	cmd.Flags().IntVar(&o.Count, "count", 0, "print the state as text, this many times; 0: on a terminal the live view")
	return cmd
}

func newFleetScale() *cobra.Command {
	var s fleetctl.Scale
	cmd := &cobra.Command{
		Use: "scale COUNT", Short: "Set the number of nodes of a running fleet", Args: cobra.ExactArgs(1),
		Long: `Set the number of nodes of a running fleet. If there are too many, the command removes those with the largest numbers, and
the pods on them. If several processes share the fleet, the number is that of the whole fleet.`,
		Example: `  wherry fleet scale 200
  wherry fleet scale 20 --group big --wait 1m`,
		RunE: finishing(func(cmd *cobra.Command, args []string) error {
			return s.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		}),
	}
	fleetSocket(cmd.Flags(), &s.Client)
	cmd.Flags().StringVar(&s.Group, "group", "", "group of the template; default: the only one")
	cmd.Flags().DurationVar(&s.Wait, "wait", 0, "wait this long until the nodes are Ready; 0: do not wait")
	return cmd
}

func newFleetApply() *cobra.Command {
	var a fleetctl.Apply
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Make the faults of a scenario happen in a running fleet", Args: cobra.ExactArgs(1),
		Long: `Make the faults of a scenario happen in a running fleet: see docs/fleet.md. The command returns at once; the fleet itself says
what happens. The scenario goes on until all its events have happened, or the fleet ends.`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.Run(cmd.Context(), cmd.OutOrStdout(), args[0]) },
	}
	fleetSocket(cmd.Flags(), &a.Client)
	return cmd
}

// fleetExpect adds the flags of a command that waits for expectations. expect is nil if the command takes the expectations as arguments
// instead of with a flag.
func fleetExpect(fs *pflag.FlagSet, expect *[]string, hold *time.Duration, output *string) {
	if expect != nil {
		fs.StringArrayVar(expect, "expect", nil, "what must hold, for example pods=running or nodes.ready>=90%; may be repeated: see wherry fleet expect --help")
	}
	fs.DurationVar(hold, "hold", 0, "for how long all expectations must hold without a break; 0: once")
	fs.StringVarP(output, "output", "o", "", "json: print the outcome of the expectations as JSON")
}

func newFleetExpect() *cobra.Command {
	var e fleetctl.Expect
	cmd := &cobra.Command{
		Use: "expect EXPECTATION...", Short: "Wait until expectations hold in a running fleet; fail if they do not", Args: cobra.MinimumNArgs(1),
		Long: `Wait until all expectations hold at the same time. The exit status is 0 if they do, 3 if they do not within the time of --within or
before the command is interrupted, and 1 if something else fails. An expectation is one of

  nodes=ready  nodes=gone  pods=running  pods=ready  pods=succeeded  pods=finished  pods=gone

about all nodes or pods of the fleet, or a comparison (=, !=, <, <=, >, >=) of one of

  nodes.ready  .notReady  .present  .joining  .leaving  .crashed  .partitioned  .failed     a number, or a part such as 90%
  pods.running  .ready  .pending  .succeeded  .failed  .all                                a number, or a part such as 90%
  leases.p50  .p99  .overdue  .failed                                                      a duration; of .failed a number`,
		Example: `  wherry fleet expect pods=running nodes=ready --within 60s
  wherry fleet expect 'nodes.ready>=90%' 'leases.p99<=1s' --hold 1m --within 5m -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Texts = args
			return e.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	fleetSocket(cmd.Flags(), &e.Client)
	fleetExpect(cmd.Flags(), nil, &e.Hold, &e.Output)
	cmd.Flags().DurationVar(&e.Within, "within", time.Minute, "fail if that takes longer; 0: no limit")
	return cmd
}

func newFleetStop() *cobra.Command {
	var s fleetctl.Stop
	cmd := &cobra.Command{
		Use: "stop", Short: "End a running fleet, as Ctrl-C does, and wait until it has cleaned up", Args: cobra.NoArgs,
		RunE: finishing(func(cmd *cobra.Command, _ []string) error { return s.Run(cmd.Context(), cmd.OutOrStdout()) }),
	}
	fleetSocket(cmd.Flags(), &s.Client)
	return cmd
}

// fleetNodes adds the flags that select nodes of a fleet.
func fleetNodes(fs *pflag.FlagSet, s *fleet.Selector) {
	fs.StringVar(&s.Group, "group", "", "only nodes of this group; alone: all of them")
	fs.StringVarP(&s.Labels, "selector", "l", "", "only nodes whose labels in the template match this label selector, for example topology.kubernetes.io/zone=z1; alone: all of them")
	fs.IntVar(&s.Count, "count", 0, "this many nodes")
	fs.Float64Var(&s.Percent, "percent", 0, "this part of the nodes")
	fs.BoolVar(&s.All, "all", false, "all nodes")
	fs.Uint64Var(&s.Seed, "seed", 0, "which nodes --count and --percent choose")
}

// faultFlags are the flags of wherry fleet fault that are for some kinds of faults only.
var faultFlags = map[string][]string{
	"method": {"runtime"}, "delay": {"runtime", "slow-api"}, "error": {"runtime"}, "hang": {"runtime"}, "code": {"runtime"}, "lose-answer": {"runtime"},
	"lose-events": {"runtime"}, "chance": {"runtime"}, "memory": {"pressure"}, "disk": {"pressure"}, "processes": {"pressure"}, "resource": {"devices"},
	"unhealthy": {"devices"}, "offset": {"clock"}, "drift": {"clock"}, "pod-namespace": {"exit"}, "pod": {"exit"}, "container": {"exit"}, "exit-code": {"exit"},
	"oom": {"exit"},
}

// checkFaultFlags returns an error if a flag is set that the kind of fault does not have.
func checkFaultFlags(fs *pflag.FlagSet, kind string) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		of, some := faultFlags[f.Name]
		if !some || slices.Contains(of, kind) || err != nil {
			return
		}
		word := "fault"
		if len(of) > 1 {
			word = "faults"
		}
		err = fmt.Errorf("--%s is for the %s %s, not for %s", f.Name, word, strings.Join(of, " and "), kind)
	})
	return err
}

func newFleetFault() *cobra.Command {
	var f fleetctl.Fault
	cmd := &cobra.Command{
		Use: "fault KIND [NODE...]", Short: "Inject a fault into nodes of a running fleet", Args: cobra.MinimumNArgs(1),
		Long: `Inject a fault into nodes of a running fleet, by their names or by --count, --percent, --group, --selector or --all. KIND is one of

  crash      the machine stops, with its agent and containers; when it is healed, it boots and starts its pods again
  agent      only the agent ends; the containers continue to run, and the next agent finds them
  partition  the node and the API server do not reach each other
  runtime    the container runtime misbehaves: --delay, --error, --hang, --lose-answer or --lose-events
  slow-api   the node's requests to the API server take longer: --delay
  lease      the node does not renew its lease
  pressure   processes outside the pods use --memory, --disk or --processes, in percent of the machine
  shutdown   the machine begins to shut down: a node with shutdownGracePeriod ends its pods
  not-ready  the runtime says that the network of the pods is not set up: the node is NotReady
  devices    devices of --resource are unhealthy: all, or as many as --unhealthy
  clock      the node's clock is wrong: --offset, --drift
  exit       running containers end once: --pod, --container, --exit-code or --oom

The fault lasts until "wherry fleet heal", or for the time of --for.`,
		Example: `  wherry fleet fault crash fleet-node-7 --for 1m
  wherry fleet fault partition --percent 10 --seed 3
  wherry fleet fault runtime --all --method PullImage --delay 30s
  wherry fleet fault pressure fleet-node-3 --memory 99.9 --for 5m
  wherry fleet fault clock --percent 20 --offset=-5m
  wherry fleet fault exit --all --pod 'web-*' --oom`,
		ValidArgs: []cobra.Completion{"crash", "agent", "partition", "runtime", "slow-api", "lease", "pressure", "shutdown", "not-ready", "devices", "clock", "exit"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFaultFlags(cmd.Flags(), args[0]); err != nil {
				return err
			}
			f.Fault.Kind, f.Nodes.Names = fleet.FaultKind(args[0]), args[1:]
			if f.Fault.Kind == fleet.FaultSlowAPI { // two kinds of faults use the flag --delay
				f.Fault.Delay, f.Fault.Runtime.Delay = f.Fault.Runtime.Delay, 0
			}
			return f.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fleetNodes(fs, &f.Nodes)
	fs.DurationVar(&f.Fault.For, "for", 0, "how long; 0: until wherry fleet heal")
	fs.StringVar(&f.Fault.Runtime.Method, "method", "", "of runtime: only this CRI method")
	fs.DurationVar(&f.Fault.Runtime.Delay, "delay", 0, "of runtime and slow-api: calls and requests take longer")
	fs.StringVar(&f.Fault.Runtime.Error, "error", "", "of runtime: calls fail with this message")
	fs.BoolVar(&f.Fault.Runtime.Hang, "hang", false, "of runtime: calls hang")
	fs.StringVar(&f.Fault.Runtime.Code, "code", "", "of runtime: gRPC code of --error, for example Unavailable; default: Unknown")
	fs.BoolVar(&f.Fault.Runtime.LoseAnswer, "lose-answer", false, "of runtime: calls take effect and then fail with --error; without --error they hang")
	fs.BoolVar(&f.Fault.Runtime.LoseEvents, "lose-events", false, "of runtime: events of containers are lost")
	fs.Float64Var(&f.Fault.Runtime.Chance, "chance", 0, "of runtime: for each call, from 0 to 1; 0: always")
	fs.Float64Var(&f.Fault.Pressure.Memory, "memory", 0, "of pressure: this part of the memory is in use, in percent")
	fs.Float64Var(&f.Fault.Pressure.Disk, "disk", 0, "of pressure: this part of the disk is in use, in percent")
	fs.Float64Var(&f.Fault.Pressure.Processes, "processes", 0, "of pressure: this part of the process IDs is in use, in percent")
	fs.StringVar(&f.Fault.Devices.Resource, "resource", "", "of devices: the extended resource, for example example.com/gpu")
	fs.IntVar(&f.Fault.Devices.Unhealthy, "unhealthy", 0, "of devices: this many are unhealthy; 0: all")
	fs.DurationVar(&f.Fault.Clock.Offset, "offset", 0, "of clock: so much ahead, for example 5m; behind: -5m")
	fs.DurationVar(&f.Fault.Clock.Drift, "drift", 0, "of clock: it gains so much time in an hour, for example 10s; it loses time: -10s")
	fs.StringVar(&f.Fault.Exit.Namespace, "pod-namespace", "", "of exit: only containers of pods in namespaces that match this pattern")
	fs.StringVar(&f.Fault.Exit.Pod, "pod", "", "of exit: only containers of pods whose names match this pattern")
	fs.StringVar(&f.Fault.Exit.Container, "container", "", "of exit: only containers whose names match this pattern")
	fs.Int32Var(&f.Fault.Exit.Code, "exit-code", 0, "of exit: the exit code")
	fs.BoolVar(&f.Fault.Exit.OOM, "oom", false, "of exit: as if the memory were short (exit code 137, OOMKilled)")
	fleetSocket(fs, &f.Client)
	return cmd
}

func newFleetHeal() *cobra.Command {
	f := fleetctl.Fault{Heal: true}
	cmd := &cobra.Command{
		Use: "heal [NODE...]", Short: "End the faults of nodes of a running fleet",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Nodes.Names = args
			return f.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fleetNodes(fs, &f.Nodes)
	fleetSocket(fs, &f.Client)
	return cmd
}
