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

// SystemBus is the address of systemd's bus.
const SystemBus = "unix:path=/run/dbus/system_bus_socket"

// ConfigDir is the directory of logind's configuration.
const ConfigDir = "/etc/systemd/logind.conf.d"

const (
	service = "org.freedesktop.login1"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	manager = "org.freedesktop.login1.Manager"
	signal  = "PrepareForShutdown"
)

// openBound is how long the bus may take to accept the connection.
const openBound = 10 * time.Second

// Bus is a connection to the bus on which logind answers.
type Bus struct {
	conn    *dbus.Conn
	signals *signals
}

// Open connects to the bus at a D-Bus address and subscribes to logind's signals.
func Open(ctx context.Context, address string) (*Bus, error) {
	s := &signals{hints: make(chan struct{}, 1)}
	conn, err := dbus.Dial(address, dbus.WithSignalHandler(s))
	if err != nil {
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	// A bus that accepts the connection and never answers would otherwise block for ever.
	giveUp := time.AfterFunc(openBound, func() { _ = conn.Close() })
	defer giveUp.Stop()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	if err == nil {
		err = conn.Hello()
	}
	if err == nil {
		err = s.follow(ctx, conn)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the system bus: %w", err), conn.Close())
	}
	return &Bus{conn: conn, signals: s}, nil
}

// Shutdowns sends a hint when logind says that a shutdown begins or is cancelled; Preparing then reports which of the two it is.
// Hints that nobody has received yet are merged into one. The channel is closed when the connection has ended.
func (b *Bus) Shutdowns() <-chan struct{} { return b.signals.hints }

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

// Raise makes MaxDelay at least d. It writes a file into dir, the directory of logind's configuration, and waits until logind has read the
// file.
func (b *Bus) Raise(ctx context.Context, dir string, d time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raise logind's delay: %w", err)
	}
	// The file has the name of upstream's kubelet, so that no second file remains when one agent replaces the other.
	text := fmt.Sprintf("# Of the node agent: shutdownGracePeriod\n[Login]\nInhibitDelayMaxSec=%d\n", int64(math.Ceil(d.Seconds())))
	if err := os.WriteFile(filepath.Join(dir, "99-kubelet.conf"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("raise logind's delay: %w", err)
	}
	const hangup = int32(1) // SIGHUP: logind reads its configuration again
	err := b.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		CallWithContext(ctx, "org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", hangup).Err
	if err != nil {
		return fmt.Errorf("raise logind's delay: make it read its configuration: %w", err)
	}
	for was := time.Duration(-1); ; {
		now, err := b.MaxDelay(ctx)
		if err == nil && now >= d || err != nil && (ctx.Err() == nil || was < 0) {
			return err
		}
		if err == nil {
			was = now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("raise logind's delay to %s: it is %s: another file in %s sets it lower: %w", d, was, dir, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Inhibit makes logind delay every shutdown until the caller closes the returned file, at most for MaxDelay.
func (b *Bus) Inhibit(ctx context.Context, who, why string) (*os.File, error) {
	// The call itself has no time limit. If it had one, the file of an answer that comes after the limit would stay open, and
	// would delay every shutdown for ever.
	call := b.conn.Object(service, path).Go(manager+".Inhibit", 0, make(chan *dbus.Call, 1), "shutdown", who, why, "delay")
	select {
	case <-call.Done:
		return inhibitor(call)
	case <-ctx.Done():
		go func() { // the goroutine ends with the answer or the connection
			if f, err := inhibitor(<-call.Done); err == nil {
				_ = f.Close()
			}
		}()
		return nil, fmt.Errorf("ask logind to delay a shutdown: %w", ctx.Err())
	}
}

// inhibitor returns the file in the answer to Inhibit.
func inhibitor(call *dbus.Call) (*os.File, error) {
	var fd dbus.UnixFD
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("ask logind to delay a shutdown: %w", err)
	}
	return os.NewFile(uintptr(fd), "logind's inhibitor"), nil
}

// Close ends the connection. Files that Inhibit returned stay open.
func (b *Bus) Close() error { return b.conn.Close() }
