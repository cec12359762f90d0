package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// run1 runs a wherry command line in this process and returns its output.
func run1(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if err := root.Execute(); err != nil {
		t.Fatalf("wherry %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// visible calls f for each command that is not hidden, with the words of the command and its flags.
func visible(f func(path []string, flags *pflag.FlagSet)) {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		c.InitDefaultHelpFlag()
		flags := c.Flags()
		if c.Name() == "kubelet" {
			flags = config.Flags()
		}
		f(path, flags)
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				walk(sub, append(path[:len(path):len(path)], sub.Name()))
			}
		}
	}
	walk(root, nil)
}

// Each command has a manual page, which lists all of its flags.
func TestManualPagesHaveEverything(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	run1(t, "man", dir)
	pages := 0
	visible(func(path []string, flags *pflag.FlagSet) {
		pages++
		name := strings.Join(append([]string{"wherry"}, path...), "-") + ".1"
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if flag := strings.ReplaceAll("--"+f.Name, "-", `\-`); !f.Hidden && !strings.Contains(string(text), flag) {
				t.Errorf("%s does not have --%s", name, f.Name)
			}
		})
	})
	if written, err := os.ReadDir(dir); err != nil || len(written) != pages || pages < 20 {
		t.Errorf("%d pages for %d commands: %v", len(written), pages, err)
	}
}

// In each shell, the completion script runs `wherry __complete`, which lists every command and every flag.
func TestCompletionHasEverything(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script := run1(t, "completion", shell); !strings.Contains(script, "__complete") || !strings.Contains(script, "wherry") {
			t.Errorf("the script for %s does not ask the program: %.200s", shell, script)
		}
	}
	visible(func(path []string, flags *pflag.FlagSet) {
		if len(path) > 0 {
			above, name := path[:len(path)-1], path[len(path)-1]
			if said := run1(t, append(append([]string{"__complete"}, above...), "")...); !strings.Contains("\n"+said, "\n"+name+"\t") {
				t.Errorf("%v completes to %q, without %s", above, said, name)
			}
		}
		said := "\n" + run1(t, append(append([]string{"__complete"}, path...), "--")...)
		flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(said, "\n--"+f.Name) {
				t.Errorf("%v -- does not complete to --%s", path, f.Name)
			}
		})
	})
}

// Flags that upstream has removed are not completed. An argument without a leading "-" is completed to file names.
func TestCompletionOfTheKubelet(t *testing.T) {
	t.Parallel()
	if said := run1(t, "__complete", "kubelet", "--node-l"); !strings.HasPrefix(said, "--node-labels\t") {
		t.Errorf("--node-l completes to %q", said)
	}
	if said := run1(t, "__complete", "kubelet", "--config", ""); !strings.Contains(said, ":0") {
		t.Errorf("a file completes to %q, want the directive that leaves it to the shell", said)
	}
	if said := run1(t, "__complete", "kubelet", "--network-pl"); strings.Contains(said, "--network-plugin") {
		t.Errorf("a flag that was removed completes: %q", said)
	}
}
