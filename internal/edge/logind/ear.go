package logind

import (
	"context"
	"errors"
	"sync"

	"github.com/godbus/dbus/v5"
)

// theBus is the name of the bus itself. No other connection can send signals under this name.
const theBus = "org.freedesktop.DBus"

// ear receives the signals of a connection. Every local process may send a signal that looks like logind's, so only signals from
// the connection that has logind's name count. ear never blocks the connection, and stores nothing of a signal.
type ear struct {
	hints chan struct{}

	mu     sync.Mutex
	owner  string // the connection that has logind's name; "": none
	closed bool
}

// follow subscribes to the signals that DeliverSignal handles, and finds out which connection is logind's.
func (e *ear) follow(ctx context.Context, conn *dbus.Conn) error {
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owner == "" { // otherwise the owner has changed since the call
		e.owner = owner
	}
	return nil
}

// DeliverSignal is called by package dbus with each signal of the connection, one at a time.
func (e *ear) DeliverSignal(_, _ string, s *dbus.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return
	case s.Sender == theBus && s.Name == theBus+".NameOwnerChanged" && len(s.Body) == 3 && s.Body[0] == service:
		e.owner, _ = s.Body[2].(string) // what the earlier owner has said no longer counts
	case s.Sender == "" || s.Sender != e.owner || s.Name != manager+"."+signal || s.Path != path:
		return
	}
	select {
	case e.hints <- struct{}{}:
	default:
	}
}

// Terminate is called by package dbus when the connection ends.
func (e *ear) Terminate() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		close(e.hints)
	}
}
