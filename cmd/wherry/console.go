package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/internal/cli/fleetctl"
	"github.com/wherry-node/wherry/internal/cli/podctl"
)

func newConsole() *cobra.Command {
	var a access
	var c podctl.Console
	var fleet string
	cmd := &cobra.Command{
		Use: "console", Short: "Show a node or a fleet as a web page", Args: cobra.NoArgs,
		Long: `Show a node or a fleet as a web page that changes with it: pods and what they did over time, the answer of "wherry explain",
resources, logs, events, and what the node's own work waits for. The page is for one browser on this machine: the command opens a
port on 127.0.0.1 and prints a link that works once.

Without --node the command asks the agent at its control socket; with --fleet, a fleet of this machine. With --node it asks a node
of a cluster through the API server, with your own rights (get nodes/proxy); the node must have console.enabled in the file of
--wherry-config. Nothing can be changed through the page.`,
		Example: "  wherry console\n" +
			"  wherry console --node worker-3\n" +
			"  wherry console --fleet fleet",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fleet != "" {
				if c.Node != "" {
					return errors.New("use --node or --fleet, not both")
				}
				running := fleetctl.Client{Name: fleet, Socket: c.Socket}
				path, err := running.Path()
				if err != nil {
					return err
				}
				if c.Socket = path; !running.Listens(cmd.Context()) {
					return fmt.Errorf("no fleet %s listens on %s: start one with wherry fleet --name %[1]s, or name another with --fleet or --socket", fleet, c.Socket)
				}
			}
			if c.Node != "" {
				cfg, _, err := a.config()
				if err != nil {
					return err
				}
				c.Config = cfg
			}
			return c.Run(cmd.Context(), streams(cmd))
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&c.Node, "node", "", "a node of a cluster; default: the node of this machine")
	a.flags(fs)
	fs.StringVar(&fleet, "fleet", "", "a fleet of this machine, by its name")
	fs.StringVar(&c.Socket, "socket", "", "the control socket of the agent or of the fleet; default: WHERRY_SOCKET, then the usual places")
	fs.IntVar(&c.Port, "port", 0, "port on 127.0.0.1; 0: any free port")
	return cmd
}
