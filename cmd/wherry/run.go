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

Where an agent listens on the control socket, the pods are pushed to it. Else one is started here, with the container
runtime that is found, and ends with this command.

The command shows what the pods do and write. When all of them have run to their end (restartPolicy Never or OnFailure), it
ends with the exit code of the first container that failed. Ctrl-C stops the pods with their grace period and removes them
without trace; a second Ctrl-C leaves that to the next agent. With --keep they run on, also without an agent, and the next
"wherry run" looks after them again.

The same manifest again changes nothing while its pod runs. An edited one is a new pod, which begins when the old one has
ended. A changed ConfigMap or Secret is seen by the pods that mount it.`,
		Example: `  wherry run web.yaml
  wherry run --detach -f web.yaml -f config/
  generate-pod | wherry run -
  wherry run --container-runtime-endpoint simulated:// web.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Files = append(o.Files, args...)
			return o.Run(cmd.Context(), streams(cmd))
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVarP(&o.Files, "filename", "f", nil, "a manifest, as an argument is one")
	fs.BoolVarP(&o.Detach, "detach", "d", false, "push to an agent that runs, and end")
	fs.BoolVar(&o.Wait, "wait", false, "with --detach: end when all pods are ready or have run to their end")
	fs.DurationVar(&o.Timeout, "timeout", 0, "fail when the pods are not ready, or at their end, in this time; 0: wait on")
	fs.BoolVar(&o.Keep, "keep", false, "leave the pods running at the end")
	fs.Int64VarP(&o.Grace, "grace", "t", -1, "seconds that containers get to end; -1: what the manifest says")
	fs.BoolVarP(&o.Quiet, "quiet", "q", false, "say nothing of progress")
	fs.BoolVar(&o.NoLogs, "no-logs", false, "do not show what the containers write")
	fs.StringVar(&o.Agent.Socket, "socket", "", "the agent's control socket; default: WHERRY_SOCKET, then the usual places")
	fs.StringVar(&o.Agent.Runtime, "container-runtime-endpoint", "", "of an agent that is started: the container runtime, or simulated://; default: the first that is found")
	fs.StringVar(&o.Agent.Root, "root-dir", "", "of an agent that is started: where it keeps its state (/var/lib/wherry)")
	fs.StringVar(&o.Agent.CgroupRoot, "cgroup-root", "/wherry", "of an agent that is started: the control group of its pods")
	fs.StringVar(&o.Agent.NodeName, "node-name", "", "of an agent that is started: the node's name; default: the host's")
	fs.IntVarP(&o.Agent.Verbosity, "v", "v", 0, "of an agent that is started: log to standard error, this much; 0: to agent.log in its directory")
	return cmd
}
