package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wherry-node/wherry/internal/cli/launch"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// newKubelet returns the command `wherry kubelet`. cobra does not parse its flags: internal/edge/config parses them before it reads the
// configuration files that they name, and once more afterwards, because flags take precedence over files.
func newKubelet() *cobra.Command {
	return &cobra.Command{
		Use:                "kubelet",
		Short:              "Run the node agent: the same flags and files as Kubernetes' kubelet",
		DisableFlagParsing: true,
		ValidArgsFunction:  completeKubelet,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, notices, err := config.Load(args)
			switch {
			case errors.Is(err, config.ErrHelp):
				fmt.Fprint(cmd.OutOrStdout(), config.Usage())
				return nil
			case errors.Is(err, config.ErrVersionRaw):
				fmt.Fprintln(cmd.OutOrStdout(), config.ThisBuild().Raw())
				return nil
			case errors.Is(err, config.ErrVersion):
				fmt.Fprintln(cmd.OutOrStdout(), "Kubernetes", config.KubeletVersion)
				return nil
			case err != nil:
				return err
			}
			level := cfg.Level()
			log := cfg.NewLoggerAt(os.Stderr, level)
			for _, n := range notices {
				log.Warn(n.Message, "subject", n.Subject, "kind", string(n.Kind))
			}
			facts, err := config.ReadHostFacts()
			if err == nil {
				err = cfg.CheckHost(facts)
			}
			if err != nil {
				return err
			}
			return launch.Kubelet(cmd.Context(), cfg, log, level)
		},
	}
}

// completeKubelet completes the arguments of `wherry kubelet`, whose flags cobra does not know. An argument that begins with "-" is
// completed to a flag, and any other argument to a file name.
func completeKubelet(_ *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if !strings.HasPrefix(start, "-") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var found []cobra.Completion
	config.Flags().VisitAll(func(f *pflag.Flag) {
		if name := "--" + f.Name; !f.Hidden && strings.HasPrefix(name, start) {
			found = append(found, cobra.CompletionWithDesc(name, f.Usage))
		}
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}
