// logind takes the place of systemd-logind in the guest in which upstream's node tests run. The tests of GracefulNodeShutdown announce a
// shutdown with a signal of their own connection that looks like logind's. An agent that listens only to logind does not see it. This program
// has logind's name on the bus and sends each such signal again, as its own. It also answers what an agent asks logind.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/godbus/dbus/v5"
)

const (
	service = "org.freedesktop.login1"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	manager = "org.freedesktop.login1.Manager"
	prepare = manager + ".PrepareForShutdown"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "logind:", err)
		os.Exit(1)
	}
}

// run answers until the connection to the bus ends.
func run() error {
	signal.Ignore(syscall.SIGHUP) // the agent asks logind to read its configuration again, which this program does on each request
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		return fmt.Errorf("connect to the system bus: %w", err)
	}
	defer func() { _ = conn.Close() }()
	l := &logind{configuration: "/etc/systemd/logind.conf.d"}
	for name, methods := range map[string]map[string]any{
		manager:                           {"Inhibit": l.inhibit},
		"org.freedesktop.DBus.Properties": {"Get": l.property},
	} {
		if err := conn.ExportMethodTable(methods, path, name); err != nil {
			return err
		}
	}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	if err := conn.AddMatchSignal(dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForShutdown"), dbus.WithMatchObjectPath(path)); err != nil {
		return fmt.Errorf("listen for announcements of a shutdown: %w", err)
	}
	reply, err := conn.RequestName(service, dbus.NameFlagDoNotQueue)
	if err != nil {
		return fmt.Errorf("take the name %s: %w", service, err)
	}
	if reply != dbus.RequestNameReplyPrimaryOwner {
		return fmt.Errorf("take the name %s: another program has it: stop systemd-logind first", service)
	}
	for s := range signals {
		begins, ok := announced(s, conn.Names()[0])
		if !ok {
			continue
		}
		l.preparing.Store(begins)
		if err := conn.Emit(path, prepare, begins); err != nil {
			return fmt.Errorf("announce a shutdown: %w", err)
		}
	}
	return nil
}

// announced returns what a signal announces: that a shutdown begins, or that it does not take place after all. ok is false if the signal
// announces neither, or comes from the connection own.
func announced(s *dbus.Signal, own string) (begins, ok bool) {
	if s.Sender == own || s.Name != prepare || s.Path != path || len(s.Body) != 1 {
		return false, false
	}
	begins, ok = s.Body[0].(bool)
	return begins, ok
}

// logind answers requests. Its methods may be called concurrently.
type logind struct {
	configuration string // directory of logind's configuration files
	preparing     atomic.Bool
}

// inhibit returns a file, as logind does. No shutdown waits until it is closed, because there is none.
func (l *logind) inhibit(_, _, _, _ string) (dbus.UnixFD, *dbus.Error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	_ = syscall.Close(ends[0])
	return dbus.UnixFD(ends[1]), nil // stays open here: only the answer, which is sent later, hands it over
}

// property returns a property of logind.
func (l *logind) property(of, name string) (dbus.Variant, *dbus.Error) {
	switch {
	case of == manager && name == "PreparingForShutdown":
		return dbus.MakeVariant(l.preparing.Load()), nil
	case of == manager && name == "InhibitDelayMaxUSec":
		return dbus.MakeVariant(delay(l.configuration)), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("this stand-in for logind has no property %s of %s", name, of))
}

// delay returns InhibitDelayMaxSec of the configuration files in a directory, in microseconds. The last file that sets it counts.
func delay(dir string) uint64 {
	const unset = 5_000_000
	usec := uint64(unset)
	files, _ := filepath.Glob(filepath.Join(dir, "*.conf")) // the pattern is valid, so there is no error
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "InhibitDelayMaxSec="); ok {
				if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
					usec = seconds * 1_000_000
				}
			}
		}
	}
	return usec
}
