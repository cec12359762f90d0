package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// unitName is the name under which Unit shows the node agent, as if it were a systemd unit. Upstream's tests look for a name of the form
// kubelet-WORD.
const unitName = "kubelet-node.service"

// toStop is how long the node agent may take to stop before it is killed.
const toStop = 30 * time.Second

func unitFile(dir string) string { return filepath.Join(dir, "run", "node.json") }

// writeUnit stores how the node agent was started, so that Unit can start it again.
func writeUnit(dir string, spec proc.Spec) error {
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(unitFile(dir), data, 0o644)
}

// Unit replaces systemctl for tests that stop or restart the node agent of the environment in dir. args are the arguments of systemctl; an
// unknown command or another unit is an error. Unit returns when the agent has stopped, or when its new process runs.
func Unit(ctx context.Context, dir string, args []string, out io.Writer) error {
	data, err := os.ReadFile(unitFile(dir))
	if err != nil {
		return fmt.Errorf("find the node agent: %w", err)
	}
	var spec proc.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("read %s: %w", unitFile(dir), err)
	}
	if len(args) == 0 {
		return errors.New("systemctl: no command given")
	}
	verb, rest := args[0], args[1:]
	if verb == "list-units" {
		return listUnit(spec, rest, out)
	}
	if len(rest) != 1 || strings.TrimSuffix(rest[0], ".service") != strings.TrimSuffix(unitName, ".service") {
		return fmt.Errorf("systemctl %s: the stand-in knows only the unit %s", strings.Join(args, " "), unitName)
	}
	switch verb {
	case "reset-failed": // nothing to reset, because Unit does not count starts
		return nil
	case "kill", "stop":
		return proc.Stop(ctx, spec.PIDFile, toStop)
	case "start", "restart":
		if _, runs := proc.Find(spec.PIDFile); runs && verb == "start" {
			return nil
		}
		if err := proc.Stop(ctx, spec.PIDFile, toStop); err != nil {
			return err
		}
		_, err := proc.Start(spec)
		return err
	}
	return fmt.Errorf("systemctl %s: the stand-in does not know this command", verb)
}

// listUnit prints the unit as `systemctl list-units` does, if the pattern and the state in args match.
func listUnit(spec proc.Spec, args []string, out io.Writer) error {
	_, runs := proc.Find(spec.PIDFile)
	if !runs && slices.Contains(args, "--state=running") {
		return nil
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "--") {
			continue
		}
		if match, err := filepath.Match(arg, unitName); err != nil || !match {
			return err
		}
	}
	state := "active running"
	if !runs {
		state = "inactive dead"
	}
	_, err := fmt.Fprintf(out, "%s loaded %s node agent\n", unitName, state)
	return err
}
