package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-node/wherry/internal/cli/proxyctl"
	"github.com/wherry-node/wherry/internal/edge/criproxy"
)

// newCRIProxy returns the command `wherry cri proxy`, which puts faults between a node and its container runtime.
func newCRIProxy() *cobra.Command {
	var r proxyctl.Run
	var verbose bool
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Put a proxy between a node and its container runtime that makes calls slow, fail, hang or lose their answers",
		Long: `Forward CRI from the socket --listen to the real container runtime at --runtime. Any node agent or crictl uses the proxy in place of the
runtime. Calls pass through unchanged, also those of a newer CRI, until a fault affects them: one that the flags describe, one of a scenario,
or one that "wherry cri proxy fault" begins while the proxy runs. "wherry cri proxy heal" ends faults, "wherry cri proxy get" shows the calls.

The streams of exec, attach and port-forward do not pass through the proxy: the runtime names their address, and the node connects to it.`,
		Example: `  wherry cri proxy --runtime unix:///run/containerd/containerd.sock
  crictl --runtime-endpoint unix:///run/wherry-proxy.sock ps
  kubelet --container-runtime-endpoint=unix:///run/wherry-proxy.sock ...
  wherry cri proxy fault --method PullImage --delay 30s --for 1m
  wherry cri proxy --method CreateContainer --lose-answer --error 'connection lost' --code Unavailable --chance 0.2 --seed 7
  wherry cri proxy --scenario faults.yaml --record calls.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Log = stderrLog(cmd, verbose)
			return r.Run(cmd.Context())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&r.Listen, "listen", "unix:///run/wherry-proxy.sock", "where clients call: unix:///PATH")
	fs.StringVar(&r.Runtime, "runtime", "unix:///run/containerd/containerd.sock", "the real runtime: unix:///PATH")
	proxyFault(cmd, &r.Fault)
	fs.StringVar(&r.Scenario, "scenario", "", "file with faults that happen while the proxy runs")
	fs.StringVar(&r.Record, "record", "", "write a line of JSON for each call to this file: time, method, duration, code and sizes")
	fs.Int64Var(&r.RecordLimit, "record-limit", 64, "most MiB of the record; half of it is FILE.1, which has the older calls")
	proxySocket(fs, &r.Socket)
	fs.BoolVarP(&verbose, "verbose", "v", false, "log each call")
	cmd.AddCommand(newCRIProxyGet(), newCRIProxyFault(), newCRIProxyHeal(), newCRIProxyApply())
	return cmd
}

func proxySocket(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "socket", "", "control socket of the proxy; default: cri-proxy.sock in /run/wherry, or in this user's runtime directory")
}

// proxyMethod adds the flag --method, which completes to the methods of CRI.
func proxyMethod(cmd *cobra.Command, to *string, usage string) {
	cmd.Flags().StringVar(to, "method", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("method", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return criproxy.Methods(), cobra.ShellCompDirectiveNoFileComp
	}) // an error means that the flag does not exist
}

// proxyFault adds the flags that describe a fault of the runtime.
func proxyFault(cmd *cobra.Command, in *proxyctl.Injection) {
	proxyMethod(cmd, &in.Fault.Method, "of a fault: only this CRI method, for example PullImage; default: every method")
	fs := cmd.Flags()
	fs.DurationVar(&in.Fault.Delay, "delay", 0, "of a fault: calls take longer")
	fs.StringVar(&in.Fault.Error, "error", "", "of a fault: calls fail with this message, and do not reach the runtime")
	fs.StringVar(&in.Fault.Code, "code", "", "of a fault: gRPC code of --error, for example Unavailable; default: Unknown")
	fs.BoolVar(&in.Fault.Hang, "hang", false, "of a fault: calls hang until the client gives up")
	fs.BoolVar(&in.Fault.LoseAnswer, "lose-answer", false, "of a fault: calls reach the runtime, and then fail with --error; without --error they hang")
	fs.BoolVar(&in.Fault.LoseEvents, "lose-events", false, "of a fault: events of containers are lost")
	fs.Float64Var(&in.Fault.Chance, "chance", 0, "of a fault: for each call or event, from 0 to 1; 0: always")
	fs.Uint64Var(&in.Seed, "seed", 0, "of a fault: which calls --chance chooses")
	fs.DurationVar(&in.For, "for", 0, "of a fault: how long; 0: until wherry cri proxy heal")
}

func newCRIProxyGet() *cobra.Command {
	var g proxyctl.Get
	cmd := &cobra.Command{
		Use: "get", Short: "Print the state of a running proxy: faults, and calls by method", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	proxySocket(cmd.Flags(), &g.Socket)
	cmd.Flags().StringVarP(&g.Output, "output", "o", "", "json; default: a table")
	return cmd
}

func newCRIProxyFault() *cobra.Command {
	var f proxyctl.Fault
	cmd := &cobra.Command{
		Use: "fault", Short: "Inject a fault into a running proxy", Args: cobra.NoArgs,
		Long: `Inject a fault into a running proxy. It affects calls that begin while it is active, and lasts until "wherry cri proxy heal" or for the time
of --for. Of several faults, the first one that fits a call affects it.`,
		Example: `  wherry cri proxy fault --method PullImage --delay 30s --for 1m
  wherry cri proxy fault --method CreateContainer --error 'no space left on device'
  wherry cri proxy fault --method RunPodSandbox --hang
  wherry cri proxy fault --method StartContainer --lose-answer
  wherry cri proxy fault --lose-events --chance 0.5 --seed 7`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().SortFlags = false
	proxyFault(cmd, &f.Injection)
	proxySocket(cmd.Flags(), &f.Socket)
	return cmd
}

func newCRIProxyHeal() *cobra.Command {
	var h proxyctl.Heal
	cmd := &cobra.Command{
		Use: "heal", Short: "End the faults of a running proxy; calls that they hold go on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return h.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	proxyMethod(cmd, &h.Method, "only the faults of this CRI method; default: all faults")
	proxySocket(cmd.Flags(), &h.Socket)
	return cmd
}

func newCRIProxyApply() *cobra.Command {
	var a proxyctl.Apply
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Make the faults of a scenario happen in a running proxy", Args: cobra.ExactArgs(1),
		Long: `Make the faults of a scenario happen in a running proxy: see docs/cri-proxy.md. The command returns at once; the log of the proxy says
what happens. The scenario goes on until all its events have happened, or the proxy ends.`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.Run(cmd.Context(), cmd.OutOrStdout(), args[0]) },
	}
	proxySocket(cmd.Flags(), &a.Socket)
	return cmd
}
