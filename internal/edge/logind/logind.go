package logind

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

// SystemBus is where systemd's bus listens.
const SystemBus = "unix:path=/run/dbus/system_bus_socket"

// ConfigDir is where logind reads its configuration from.
const ConfigDir = "/etc/systemd/logind.conf.d"

const (
	service = "org.freedesktop.login1"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	manager = "org.freedesktop.login1.Manager"
	signal  = "PrepareForShutdown"
)

// openBound is how long the bus may take to accept the connection.
const openBound = 10 * time.Second

// Bus is a connection to the bus on which logind is.
type Bus struct {
	conn      *dbus.Conn
	shutdowns chan bool
}

// Open connects to the bus at an address of D-Bus and asks for logind's signals.
func Open(ctx context.Context, address string) (*Bus, error) {
	conn, err := dbus.Dial(address)
	if err != nil {
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	// A bus that accepts and then says nothing would be waited for without end.
	giveUp := time.AfterFunc(openBound, func() { _ = conn.Close() })
	defer giveUp.Stop()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	signals := make(chan *dbus.Signal, 16)
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	if err == nil {
		err = conn.Hello()
	}
	if err == nil {
		conn.Signal(signals)
		err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(service), dbus.WithMatchInterface(manager), dbus.WithMatchMember(signal), dbus.WithMatchObjectPath(path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the system bus: %w", err), conn.Close())
	}
	b := &Bus{conn: conn, shutdowns: make(chan bool)}
	go b.relay(signals)
	return b, nil
}

// relay hands on what logind says, until the connection ends.
func (b *Bus) relay(signals <-chan *dbus.Signal) {
	defer close(b.shutdowns)
	for s := range signals {
		if s.Name != manager+"."+signal || s.Path != path || len(s.Body) != 1 {
			continue
		}
		if begins, ok := s.Body[0].(bool); ok {
			select {
			case b.shutdowns <- begins:
			case <-b.conn.Context().Done():
			}
		}
	}
}

// Shutdowns says true when a shutdown begins, and false when one is cancelled. It is closed when the connection has ended. Somebody has to
// read it.
func (b *Bus) Shutdowns() <-chan bool { return b.shutdowns }

// Preparing reports whether a shutdown has begun.
func (b *Bus) Preparing(ctx context.Context) (bool, error) {
	v, err := b.property(ctx, "PreparingForShutdown")
	if err != nil {
		return false, err
	}
	preparing, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("ask logind: PreparingForShutdown is %v, not true or false", v)
	}
	return preparing, nil
}

// MaxDelay returns the longest time for which logind delays a shutdown.
func (b *Bus) MaxDelay(ctx context.Context) (time.Duration, error) {
	v, err := b.property(ctx, "InhibitDelayMaxUSec")
	if err != nil {
		return 0, err
	}
	usec, ok := v.(uint64)
	if !ok || usec > uint64(math.MaxInt64/time.Microsecond) {
		return 0, fmt.Errorf("ask logind: InhibitDelayMaxUSec is %v, not a number of microseconds", v)
	}
	return time.Duration(usec) * time.Microsecond, nil
}

func (b *Bus) property(ctx context.Context, name string) (any, error) {
	var v dbus.Variant
	err := b.conn.Object(service, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, name).Store(&v)
	if err != nil {
		return nil, fmt.Errorf("ask logind for %s: %w", name, err)
	}
	return v.Value(), nil
}

// Raise makes MaxDelay at least d, by a file in the directory of logind's configuration, and waits until logind has read it.
func (b *Bus) Raise(ctx context.Context, dir string, d time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raise logind's delay: %w", err)
	}
	// The file has the name of upstream's kubelet, so that no second one stays when one agent takes the other's place.
	text := fmt.Sprintf("# Of the node agent: shutdownGracePeriod\n[Login]\nInhibitDelayMaxSec=%d\n", int64(math.Ceil(d.Seconds())))
	if err := os.WriteFile(filepath.Join(dir, "99-kubelet.conf"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("raise logind's delay: %w", err)
	}
	const hangup = int32(1) // logind reads its configuration again
	err := b.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		CallWithContext(ctx, "org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", hangup).Err
	if err != nil {
		return fmt.Errorf("raise logind's delay: make it read its configuration: %w", err)
	}
	for {
		now, err := b.MaxDelay(ctx)
		if err != nil || now >= d {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("raise logind's delay to %s: it is %s: another file in %s sets it lower: %w", d, now, dir, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Inhibit delays a shutdown until the file is closed.
func (b *Bus) Inhibit(ctx context.Context, who, why string) (*os.File, error) {
	var fd dbus.UnixFD
	err := b.conn.Object(service, path).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", who, why, "delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("ask logind to delay a shutdown: %w", err)
	}
	return os.NewFile(uintptr(fd), "logind's inhibitor"), nil
}

// Close ends the connection. What Inhibit returned stays open.
func (b *Bus) Close() error { return b.conn.Close() }
