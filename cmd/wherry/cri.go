package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/internal/cli/fleetctl"
	"github.com/wherry-node/wherry/internal/edge/socket"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simrules"
)

// newCRI returns the command `wherry cri`, which serves the simulated runtime without an agent.
func newCRI() *cobra.Command {
	var listen string
	var rules []string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "cri",
		Short: "Serve a simulated container runtime over CRI, for crictl, critest and any node agent; nothing runs in it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := stderrLog(cmd, verbose)
			all, err := simulationRules(rules, log)
			if err != nil {
				return err
			}
			return serveCRI(cmd.Context(), listen, all, log)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "unix:///run/wherry-cri.sock", "where to listen: unix:///PATH")
	cmd.Flags().StringArrayVar(&rules, "rules", nil, "file that says what containers do and how images are pulled; may be repeated: see docs/fleet-rules.md")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log each change")
	cmd.AddCommand(newCRIProxy())
	return cmd
}

// stderrLog returns a log on standard error. A verbose one has debug lines too.
func stderrLog(cmd *cobra.Command, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
}

// simulationRules reads rules from files, and logs what they cannot have.
func simulationRules(names []string, log *slog.Logger) (*simrules.Rules, error) {
	files, err := fleetctl.RuleFiles(names)
	if err != nil {
		return nil, err
	}
	all := &simrules.Rules{}
	for _, f := range files {
		rules, err := simrules.Parse(f.Name, f.Data, f.Read)
		if err != nil {
			return nil, err
		}
		all.Add(rules)
	}
	for _, text := range all.Ignored {
		log.Warn("a document of the rules has no effect", "why", text)
	}
	return all, nil
}

// serveCRI serves the simulated runtime on a Unix socket until ctx ends. It replaces a socket file that an earlier process left, but
// returns an error if another process answers on it.
func serveCRI(ctx context.Context, endpoint string, rules *simrules.Rules, log *slog.Logger) error {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return fmt.Errorf("--listen=%q: use unix:// and the absolute path of a socket", endpoint)
	}
	l, err := socket.ListenUnused(path)
	if err != nil {
		return fmt.Errorf("--listen=%s: %w", endpoint, err)
	}
	r := simcri.New(simcri.Config{WriteLogs: true, KeepEnv: true, Rules: rules, Log: log})
	defer r.Close()
	log.Info("simulated runtime listens", "endpoint", endpoint)
	return r.Serve(ctx, l)
}
