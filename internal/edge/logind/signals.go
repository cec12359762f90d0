package logind

import (
	"context"
	"errors"
	"sync"

	"github.com/godbus/dbus/v5"
)

// theBus is the name of the bus daemon. No other connection can send signals under this name.
const theBus = "org.freedesktop.DBus"

// signals receives the signals of a connection. Every local process may send a signal that looks like logind's, so only signals from
// the connection that has logind's name count. signals never blocks the connection: it does not queue the signals, but merges them into
// one hint.
type signals struct {
	hints chan struct{}

	mu     sync.Mutex
	owner  string // the connection that has logind's name; "": none
	closed bool
}

// follow subscribes to the signals that DeliverSignal handles, and finds out which connection is logind's.
func (s *signals) follow(ctx context.Context, conn *dbus.Conn) error {
	err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(service), dbus.WithMatchInterface(manager), dbus.WithMatchMember(signal), dbus.WithMatchObjectPath(path))
	if err != nil {
		return err
	}
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(theBus), dbus.WithMatchInterface(theBus), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, service))
	if err != nil {
		return err
	}
	var owner string
	err = conn.BusObject().CallWithContext(ctx, theBus+".GetNameOwner", 0, service).Store(&owner)
	if named := (dbus.Error{}); err != nil && !errors.As(err, &named) { // a D-Bus error has a name and means that logind does not run yet
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == "" { // an owner that is already set comes from a signal, which is newer than this answer
		s.owner = owner
	}
	return nil
}

// DeliverSignal is called by package dbus with each signal of the connection, one at a time.
func (s *signals) DeliverSignal(_, _ string, sig *dbus.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return
	case sig.Sender == theBus && sig.Name == theBus+".NameOwnerChanged" && len(sig.Body) == 3 && sig.Body[0] == service:
		s.owner, _ = sig.Body[2].(string) // a signal of the earlier owner is ignored from now on
	case sig.Sender == "" || sig.Sender != s.owner || sig.Name != manager+"."+signal || sig.Path != path:
		return
	}
	select {
	case s.hints <- struct{}{}:
	default:
	}
}

// Terminate is called by package dbus when the connection ends.
func (s *signals) Terminate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.hints)
	}
}
