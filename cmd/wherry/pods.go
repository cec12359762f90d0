package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-node/wherry/internal/cli/podctl"
)

// newPodCommands returns the commands that talk to an agent over its control socket.
func newPodCommands() []*cobra.Command {
	return []*cobra.Command{newRun(), newPs(), newLogs(), newExec(), newAttach(), newStop(), newRm(), newEvents(), newExplain(), newWhy(), newReplay(), newConsole()}
}

func streams(cmd *cobra.Command) podctl.Streams {
	return podctl.Streams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
}

func targetFlags(fs *pflag.FlagSet, to *podctl.Target) {
	fs.StringVar(&to.Socket, "socket", "", "the agent's control socket; default: WHERRY_SOCKET, then the usual places")
	fs.StringVarP(&to.Namespace, "namespace", "n", "", "namespace of the pod; default: any namespace with a pod of this name")
}

// defaultContainer is the help of --container.
const defaultContainer = "the container; default: the one that the annotation kubectl.kubernetes.io/default-container names, or the first"

// graceFlag adds --grace; -1 means the pod's own grace period.
func graceFlag(fs *pflag.FlagSet, to *int64) {
	fs.Int64VarP(to, "grace", "t", -1, "seconds that containers get to end; -1: what the pod's manifest says")
}

func newPs() *cobra.Command {
	var r podctl.Ps
	cmd := &cobra.Command{
		Use: "ps [POD...]", Aliases: []string{"pods", "ls"},
		Short: "List the pods of the node",
		Example: "  wherry ps\n" +
			"  wherry ps -o wide\n" +
			"  wherry ps web -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error { return r.Run(cmd.Context(), streams(cmd), args) },
	}
	targetFlags(cmd.Flags(), &r.Target)
	cmd.Flags().StringVarP(&r.Format, "output", "o", "", "wide, json, yaml or name; default: a table")
	return cmd
}

func newLogs() *cobra.Command {
	var l podctl.Logs
	cmd := &cobra.Command{
		Use: "logs POD [-c CONTAINER]", Short: "Print what a container has written", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return l.Run(cmd.Context(), streams(cmd), args[0]) },
	}
	fs := cmd.Flags()
	targetFlags(fs, &l.Target)
	fs.StringVarP(&l.Container, "container", "c", "", defaultContainer)
	fs.BoolVarP(&l.Follow, "follow", "f", false, "go on printing until the container ends")
	fs.BoolVarP(&l.Previous, "previous", "p", false, "print the log of the container's last instance before the present one")
	fs.BoolVar(&l.Timestamps, "timestamps", false, "begin each line with its time")
	fs.BoolVar(&l.All, "all-containers", false, "print the logs of all containers, each line with its container's name")
	fs.Int64Var(&l.Tail, "tail", -1, "print only this many last lines; -1: all")
	fs.DurationVar(&l.Since, "since", 0, "print only lines that are newer than this (5s, 2m, 3h)")
	fs.StringVar(&l.SinceTime, "since-time", "", "print only lines after this time (RFC 3339)")
	return cmd
}

// sessionFlags adds -i and -t. stdin and tty are their help texts, which differ between exec and attach.
func sessionFlags(fs *pflag.FlagSet, x *podctl.Session, stdin, tty string) {
	targetFlags(fs, &x.Target)
	fs.StringVarP(&x.Container, "container", "c", "", defaultContainer)
	fs.BoolVarP(&x.Stdin, "stdin", "i", false, stdin)
	fs.BoolVarP(&x.TTY, "tty", "t", false, tty)
}

func newExec() *cobra.Command {
	var x podctl.Session
	cmd := &cobra.Command{
		Use: "exec [-it] POD [-c CONTAINER] -- COMMAND [ARG...]", Short: "Run a command in a container, and end with its exit code",
		Args: cobra.MinimumNArgs(2),
		Example: "  wherry exec web -- ls /etc\n" +
			"  wherry exec -it web -c sidecar -- sh",
		RunE: finishing(func(cmd *cobra.Command, args []string) error {
			return x.Exec(cmd.Context(), streams(cmd), args[0], args[1:])
		}),
	}
	cmd.Flags().SetInterspersed(true)
	sessionFlags(cmd.Flags(), &x, "pass standard input to the command", "standard input is a terminal, and the command gets one, too")
	return cmd
}

func newAttach() *cobra.Command {
	var x podctl.Session
	cmd := &cobra.Command{
		Use: "attach [-it] POD [-c CONTAINER]", Short: "Attach to the input and output of a running container",
		Args: cobra.ExactArgs(1),
		Example: "  wherry attach web\n" +
			"  wherry attach -it shell    # its container has stdin: true and tty: true",
		RunE: func(cmd *cobra.Command, args []string) error { return x.Attach(cmd.Context(), streams(cmd), args[0]) },
	}
	sessionFlags(cmd.Flags(), &x, "pass standard input to the container", "standard input is a terminal, and the container has a terminal, too")
	return cmd
}

func newStop() *cobra.Command {
	var r podctl.Stop
	cmd := &cobra.Command{
		Use: "stop POD...", Short: "End pods and keep them, for their logs", Args: cobra.MinimumNArgs(1),
		Long: "End pods: their preStop hooks run, and their containers get the stop signal and the grace period. A stopped pod stays in the list\n" +
			"and its logs can be read, until \"wherry rm\" removes it or \"wherry run\" runs it again. It also stays stopped\n" +
			"if the agent is restarted.",
		RunE: finishing(func(cmd *cobra.Command, args []string) error { return r.Run(cmd.Context(), streams(cmd), args) }),
	}
	targetFlags(cmd.Flags(), &r.Target)
	graceFlag(cmd.Flags(), &r.Grace)
	cmd.Flags().BoolVar(&r.NoWait, "no-wait", false, "do not wait for the end")
	return cmd
}

func newRm() *cobra.Command {
	var r podctl.Rm
	cmd := &cobra.Command{
		Use: "rm POD...", Short: "Remove pods that have ended, with their logs and volumes", Aliases: []string{"delete"},
		Long: "Remove pods that have ended or been stopped: containers, logs, volumes, and the ConfigMaps and Secrets that were pushed\n" +
			"with them and with no other pod. To remove a running pod, use --force: the pod is stopped first, with its grace period.\n" +
			"configmap/NAME and secret/NAME remove a ConfigMap or Secret that was pushed without a pod.",
		RunE: finishing(func(cmd *cobra.Command, args []string) error { return r.Run(cmd.Context(), streams(cmd), args) }),
	}
	fs := cmd.Flags()
	targetFlags(fs, &r.Target)
	graceFlag(fs, &r.Grace)
	fs.BoolVar(&r.Force, "force", false, "also remove running pods")
	fs.BoolVarP(&r.All, "all", "a", false, "remove all pods that were pushed")
	fs.BoolVar(&r.NoWait, "no-wait", false, "do not wait for the end")
	return cmd
}

func newEvents() *cobra.Command {
	var r podctl.Events
	cmd := &cobra.Command{
		Use: "events [POD]", Short: "Print what has happened on the node", Args: cobra.MaximumNArgs(1),
		Long: "Print the events of the node's pods and of the node itself, oldest first. The agent of a standalone node keeps the\n" +
			"newest events. A node in a cluster sends its events to the API server: use kubectl get events there.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.Run(cmd.Context(), streams(cmd), append(args, "")[0])
		},
	}
	targetFlags(cmd.Flags(), &r.Target)
	cmd.Flags().BoolVarP(&r.Follow, "follow", "f", false, "also print events that happen from now on")
	cmd.Flags().StringVarP(&r.Format, "output", "o", "", "json or yaml; default: a table")
	return cmd
}

func newExplain() *cobra.Command {
	var r podctl.Explain
	cmd := &cobra.Command{
		Use: "explain [POD | node]", Short: "Say why a pod is not running, what happens next and what to do; without a pod: list all pods that are not well",
		Example: "  wherry explain\n" +
			"  wherry explain web --watch\n" +
			"  wherry explain node",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.Run(cmd.Context(), streams(cmd), append(args, "")[0])
		},
	}
	targetFlags(cmd.Flags(), &r.Target)
	cmd.Flags().BoolVarP(&r.All, "all", "a", false, "also print every decision of the node about the pod, with its cause; without a pod: also list pods that are well")
	cmd.Flags().BoolVarP(&r.Watch, "watch", "w", false, "print the answer again when it changes, until the pod is well")
	cmd.Flags().BoolVar(&r.Export, "export", false, "print the node's present decision about the pod, and all on which it is based, for wherry replay; without secrets")
	cmd.Flags().BoolVar(&r.Recorded, "recorded", false, "print what an agent recorded on disk because something of the pod, or of any pod, went wrong; no agent need run")
	cmd.Flags().StringVar(&r.Root, "root-dir", "", "with --recorded: the root directory of the agent; default: /var/lib/kubelet and /var/lib/wherry, of a user other than root ~/.local/share/wherry")
	cmd.Flags().StringVarP(&r.Format, "output", "o", "", "json or yaml; default: text")
	return cmd
}

func newReplay() *cobra.Command {
	var r podctl.Replay
	cmd := &cobra.Command{
		Use: "replay FILE", Short: "Decide again what a node decided about a pod, from a file of wherry explain --export",
		Long: "Repeat a node's decision about a pod, without the node, from an exported file (-: standard input). The command prints the decision.\n" +
			"Lines that begin with - are the decision of the version that exported the file, lines that begin with + that of this version. It fails if the two differ.",
		Example: "  wherry explain web --export > web.json\n" +
			"  wherry replay web.json --step\n" +
			"  wherry replay web.json --script > internal/core/decide/testdata/decide/web.txt",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return r.Run(streams(cmd), args[0]) },
	}
	cmd.Flags().BoolVar(&r.Update, "update", false, "replace the decision in the file by that of this version")
	cmd.Flags().BoolVar(&r.Step, "step", false, "also print what each rule of this version saw and decided, in order")
	cmd.Flags().BoolVar(&r.Script, "script", false, "print the turn as a script for internal/core/decide/testdata/decide, where it is a test; the script has the decision of this version")
	return cmd
}

func newWhy() *cobra.Command {
	var a access
	var r podctl.Why
	cmd := &cobra.Command{
		Use: "why POD", Short: "Say why a pod of a cluster is not running, what happens next and what to do",
		Long: "Say why a pod of a cluster is not running. The command asks the pod's node through the API server, with your own rights (get nodes/proxy).\n" +
			"If the program is on the PATH under the name kubectl-wherry, kubectl has the command too: kubectl wherry why POD.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, namespace, err := a.config()
			if err != nil {
				return err
			}
			r.Config = cfg
			if r.Namespace == "" {
				r.Namespace = namespace
			}
			return explained(r.Run(cmd.Context(), streams(cmd), args[0]), cfg)
		},
	}
	fs := cmd.Flags()
	a.flags(fs)
	fs.StringVarP(&r.Namespace, "namespace", "n", "", "namespace of the pod; default: that of the kubeconfig's context")
	fs.BoolVarP(&r.All, "all", "a", false, "also every decision of the node about the pod, with its cause")
	fs.StringVarP(&r.Format, "output", "o", "", "json or yaml; default: text")
	return cmd
}
