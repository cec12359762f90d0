package main

import (
	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/internal/cli/podctl"
)

func newRun() *cobra.Command {
	var o podctl.Run
	cmd := &cobra.Command{
		Use:   "run [-f] MANIFEST...",
		Short: "Run the pods of manifests on this machine, without a cluster",
		Long: `Run the Pods of manifests, with their ConfigMaps and Secrets, on this machine. A manifest is a file, a directory of files,
or - for standard input.

If an agent listens on the control socket, the command pushes the pods to it. Otherwise the command starts an agent, with
the first container runtime that it finds. This agent ends together with the command.

The command prints the progress of the pods and the output of their containers. When all pods have ended (restartPolicy
Never or OnFailure), it ends with the exit code of the first container that failed. Ctrl-C stops the pods with their grace
period and removes them, with logs and volumes. After a second Ctrl-C the command ends at once, and the next agent removes
them. With --keep the pods continue to run, even without an agent, and the next "wherry run" manages them again.

If you run the same manifest again while its pod runs, nothing changes. An edited manifest is a new pod, which starts when
the old one has ended. Pods that mount a ConfigMap or Secret see its changes.`,
		Example: `  wherry run web.yaml
  wherry run --detach -f web.yaml -f config/
  generate-pod | wherry run -
  wherry run --container-runtime-endpoint simulated:// web.yaml`,
		RunE: finishing(func(cmd *cobra.Command, args []string) error {
			o.Files = append(o.Files, args...)
			return o.Run(cmd.Context(), streams(cmd))
		}),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVarP(&o.Files, "filename", "f", nil, "a manifest; manifests can also be given as arguments")
	fs.BoolVarP(&o.Detach, "detach", "d", false, "push the pods to a running agent, and end")
	fs.BoolVar(&o.Wait, "wait", false, "with --detach: end when all pods are ready or have run to their end")
	fs.DurationVar(&o.Timeout, "timeout", 0, "fail if the pods are neither ready nor ended within this time; 0: no limit")
	fs.BoolVar(&o.Keep, "keep", false, "leave the pods running at the end")
	fs.Int64VarP(&o.Grace, "grace", "t", -1, "seconds that containers get to end; -1: what the manifest says")
	fs.BoolVarP(&o.Quiet, "quiet", "q", false, "do not print progress")
	fs.BoolVar(&o.NoLogs, "no-logs", false, "do not show what the containers write")
	fs.StringVar(&o.Agent.Socket, "socket", "", "the agent's control socket; default: WHERRY_SOCKET, then the usual places")
	fs.StringVar(&o.Agent.Runtime, "container-runtime-endpoint", "", "if an agent is started: its container runtime, or simulated://; default: the first that is found")
	fs.StringVar(&o.Agent.Root, "root-dir", "", "if an agent is started: the directory of its state (/var/lib/wherry)")
	fs.StringVar(&o.Agent.CgroupRoot, "cgroup-root", "/wherry", "if an agent is started: the control group of its pods")
	fs.StringVar(&o.Agent.NodeName, "node-name", "", "if an agent is started: the node's name; default: the host's")
	fs.IntVarP(&o.Agent.Verbosity, "v", "v", 0, "if an agent is started: log to standard error with this verbosity; 0: log to agent.log in --root-dir")
	return cmd
}
