package unit

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

// Unit is a program that the stand-in for systemctl starts and stops.
type Unit struct {
	Name string // name of the unit, without ".service"
	Spec proc.Spec
}

// toStop is how long the program may take to stop before it is killed.
const toStop = 30 * time.Second

// Write stores a unit in a file, for Systemctl.
func Write(file string, u Unit) error {
	data, err := json.MarshalIndent(u, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// Systemctl does what systemctl does with the unit in a file. args are the arguments of systemctl; an unknown command is an error, and so is
// another unit, except that status and is-active say that there is none. Systemctl returns when the program has stopped, or when its new
// process runs.
func Systemctl(ctx context.Context, file string, args []string, out io.Writer) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("find the unit: %w", err)
	}
	var u Unit
	if err := json.Unmarshal(data, &u); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if len(args) == 0 {
		return errors.New("systemctl: no command given")
	}
	verb, rest := args[0], args[1:]
	switch verb {
	case "list-units":
		return u.list(rest, out)
	case "daemon-reload": // nothing to reload, because Systemctl reads the file each time
		return nil
	}
	known := len(rest) == 1 && strings.TrimSuffix(rest[0], ".service") == u.Name
	_, runs := proc.Find(u.Spec.PIDFile)
	switch verb {
	case "status":
		return u.status(known, runs, rest, out)
	case "is-active":
		return say(out, known && runs, "active", "inactive")
	}
	if !known {
		return fmt.Errorf("systemctl %s: the stand-in knows only the unit %s", strings.Join(args, " "), u.Name)
	}
	switch verb {
	case "is-enabled":
		return say(out, true, "enabled", "")
	case "enable", "disable", "reset-failed": // nothing to do, because the program starts only on request, and nobody counts its starts
		return nil
	case "kill", "stop":
		return proc.Stop(ctx, u.Spec.PIDFile, toStop)
	case "start", "restart":
		if runs && verb == "start" {
			return nil
		}
		if err := proc.Stop(ctx, u.Spec.PIDFile, toStop); err != nil {
			return err
		}
		_, err := proc.Start(u.Spec)
		return err
	}
	return fmt.Errorf("systemctl %s: the stand-in does not know this command", verb)
}

// say prints yes or no. After no it returns an error, so that the exit code says no too.
func say(out io.Writer, is bool, yes, no string) error {
	if is {
		_, err := fmt.Fprintln(out, yes)
		return err
	}
	_, err := fmt.Fprintln(out, no)
	return errors.Join(errors.New(no), err)
}

// status prints the two lines of `systemctl status` that programs look for.
func (u Unit) status(known, runs bool, names []string, out io.Writer) error {
	if !known {
		_, err := fmt.Fprintf(out, "Unit %s could not be found.\n", strings.Join(names, " "))
		return errors.Join(errors.New("no such unit"), err)
	}
	state := "inactive (dead)"
	if runs {
		state = "active (running)"
	}
	_, err := fmt.Fprintf(out, "● %s.service - node agent\n     Loaded: loaded\n     Active: %s\n", u.Name, state)
	return err
}

// list prints the unit as `systemctl list-units` does, if the pattern and the state in args match.
func (u Unit) list(args []string, out io.Writer) error {
	_, runs := proc.Find(u.Spec.PIDFile)
	if !runs && slices.Contains(args, "--state=running") {
		return nil
	}
	name := u.Name + ".service"
	for _, arg := range args {
		if strings.HasPrefix(arg, "--") {
			continue
		}
		if match, err := filepath.Match(arg, name); err != nil || !match {
			return err
		}
	}
	state := "active running"
	if !runs {
		state = "inactive dead"
	}
	_, err := fmt.Fprintf(out, "%s loaded %s node agent\n", name, state)
	return err
}
