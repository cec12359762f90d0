package logind_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/wherry-node/wherry/internal/edge/logind"
)

// fakeBus is a bus with a logind that a test controls. It speaks the D-Bus protocol on a socket, one connection at a time.
type fakeBus struct {
	t       *testing.T
	address string

	mu         sync.Mutex
	conn       *net.UnixConn
	delay      uint64 // µs
	raised     uint64 // the value of delay after logind has read its configuration again
	preparing  bool
	calls      []string
	inhibitors []*os.File    // the read ends of the pipes that Inhibit returned
	odd        bool          // if set, the properties of logind have a wrong type
	owner      string        // the connection that has logind's name
	late       chan struct{} // logind answers Inhibit when this channel is closed; nil: it answers at once
	done       chan struct{} // closed when Inhibit has been answered late
}

func newFakeBus(t *testing.T) *fakeBus {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bus")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: file, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	b := &fakeBus{t: t, address: "unix:path=" + file, delay: 5_000_000, owner: ":1.2"}
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conn = conn
			b.mu.Unlock()
			go b.serve(conn)
		}
	}()
	return b
}

func (b *fakeBus) serve(conn *net.UnixConn) {
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		line = strings.TrimLeft(line, "\x00") // a client begins its connection with a NUL byte
		switch {
		case err != nil:
			return
		case strings.Contains(line, "AUTH EXTERNAL"):
			_, _ = conn.Write([]byte("OK 0123456789abcdef0123456789abcdef\r\n"))
		case strings.HasPrefix(line, "NEGOTIATE_UNIX_FD"):
			_, _ = conn.Write([]byte("AGREE_UNIX_FD\r\n"))
		case strings.HasPrefix(line, "AUTH"):
			_, _ = conn.Write([]byte("REJECTED EXTERNAL\r\n"))
		}
		if strings.HasPrefix(line, "BEGIN") {
			break
		}
	}
	for {
		m, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		b.answer(m)
	}
}

func (b *fakeBus) answer(m *dbus.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	member, _ := m.Headers[dbus.FieldMember].Value().(string)
	if member != "Hello" {
		b.calls = append(b.calls, member)
	}
	var body []any
	switch member {
	case "Hello":
		body = []any{":1.7"}
	case "Get":
		switch name := m.Body[1].(string); {
		case b.odd:
			body = []any{dbus.MakeVariant("much")}
		case name == "InhibitDelayMaxUSec":
			body = []any{dbus.MakeVariant(b.delay)}
		case name == "PreparingForShutdown":
			body = []any{dbus.MakeVariant(b.preparing)}
		}
	case "GetNameOwner":
		body = []any{b.owner}
	case "KillUnit":
		b.delay = b.raised
	case "Inhibit":
		if late := b.late; late != nil {
			b.late = nil
			go func() {
				defer close(b.done)
				<-late
				b.answer(m)
			}()
			return
		}
		r, w, err := os.Pipe()
		if err != nil {
			b.t.Error(err)
			return
		}
		b.inhibitors = append(b.inhibitors, r)
		defer func() { _ = w.Close() }()
		body = []any{dbus.UnixFD(w.Fd())}
	}
	b.send(&dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()), dbus.FieldSender: dbus.MakeVariant("org.freedesktop.login1"),
	}, Body: body})
}

// handedOut returns the read end of the pipe of the first file that Inhibit returned.
func (b *fakeBus) handedOut() *os.File {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inhibitors[0]
}

// send writes a message with its files. The caller holds the lock.
func (b *fakeBus) send(m *dbus.Message) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	if n, _ := m.CountFds(); n > 0 {
		m.Headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(n))
	}
	var out bytes.Buffer
	fds, err := m.EncodeToWithFDs(&out, binary.LittleEndian)
	if err != nil {
		b.t.Errorf("encode: %v", err)
		return
	}
	data := out.Bytes()
	binary.LittleEndian.PutUint32(data[8:], 1) // the serial number of the message, which must not be 0
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	_, _, _ = b.conn.WriteMsgUnix(data, rights, nil)
}

// say sends a signal as logind would, from the connection that has logind's name.
func (b *fakeBus) say(member string, body ...any) {
	b.signal(":1.2", "org.freedesktop.login1.Manager", member, body...)
}

func (b *fakeBus) signal(sender, iface, member string, body ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(member),
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/login1")), dbus.FieldSender: dbus.MakeVariant(sender),
	}, Body: body})
}

func open(t *testing.T, b *fakeBus) *logind.Bus {
	t.Helper()
	bus, err := logind.Open(t.Context(), b.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	return bus
}

// hears reports whether a hint has arrived. It first calls a method of logind: the answer to that call shows that the client has
// read all earlier signals.
func (b *fakeBus) hears(t *testing.T, bus *logind.Bus) bool {
	t.Helper()
	if _, err := bus.Preparing(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case _, ok := <-bus.Shutdowns():
		return ok
	default:
		return false
	}
}

// Only logind's signals cause hints, although every process may send a signal that looks like logind's.
func TestShutdownsAreNoticed(t *testing.T) {
	t.Parallel()
	b := newFakeBus(t)
	bus := open(t, b)
	const iface = "org.freedesktop.login1.Manager"
	b.say("PrepareForSleep", true)
	b.signal(":1.99", iface, "PrepareForShutdown", true)
	b.signal("", iface, "PrepareForShutdown", true)
	b.signal(":1.99", "org.freedesktop.DBus", "NameOwnerChanged", "org.freedesktop.login1", ":1.2", ":1.99")
	b.signal("org.freedesktop.DBus", "org.freedesktop.DBus", "NameOwnerChanged", "org.example.other", ":1.2", ":1.99")
	b.signal("org.freedesktop.DBus", "org.freedesktop.DBus", "NameOwnerChanged")
	if b.hears(t, bus) {
		t.Error("what logind did not say is a hint")
	}
	for range 100 { // more signals than any buffer holds
		b.say("PrepareForShutdown", true)
	}
	if !b.hears(t, bus) || b.hears(t, bus) {
		t.Error("what logind says often is not one hint")
	}
	b.signal("org.freedesktop.DBus", "org.freedesktop.DBus", "NameOwnerChanged", "org.freedesktop.login1", ":1.2", ":1.3")
	if !b.hears(t, bus) {
		t.Error("another logind is no hint")
	}
	if b.say("PrepareForShutdown", true); b.hears(t, bus) {
		t.Error("what the old logind says is a hint")
	}
	if b.signal(":1.3", iface, "PrepareForShutdown", true); !b.hears(t, bus) {
		t.Error("what the new logind says is no hint")
	}
	b.mu.Lock()
	_ = b.conn.Close()
	b.mu.Unlock()
	select {
	case _, ok := <-bus.Shutdowns():
		if ok {
			t.Error("a connection that ended says something")
		}
	case <-time.After(10 * time.Second):
		t.Error("the end of the connection is not reported")
	}
}

// If logind answers after Inhibit's context has ended, the file of that answer is closed. If it stayed open, it would delay every
// shutdown for ever.
func TestInhibitThatIsAnsweredLate(t *testing.T) {
	t.Parallel()
	b := newFakeBus(t)
	late := make(chan struct{})
	b.late, b.done = late, make(chan struct{})
	bus := open(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := bus.Inhibit(ctx, "kubelet", "pods"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a silent logind: %v", err)
	}
	close(late)
	<-b.done
	ended := make(chan error, 1)
	go func() {
		_, err := b.handedOut().Read(make([]byte, 1)) // the read ends when no writer is left
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the late answer delays the shutdown")
	}
}

// logind delays the shutdown until the file that Inhibit returned is closed.
func TestInhibit(t *testing.T) {
	t.Parallel()
	b := newFakeBus(t)
	file, err := open(t, b).Inhibit(t.Context(), "kubelet", "pods")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.handedOut().Read(make([]byte, 1)) // the read ends when no writer is left
		ended <- err
	}()
	select {
	case <-ended:
		t.Fatal("it was released at once")
	case <-time.After(50 * time.Millisecond):
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it was not released")
	}
}

func TestDelayIsRaised(t *testing.T) {
	t.Parallel()
	b := newFakeBus(t)
	b.raised = 31_000_000
	bus, dir := open(t, b), filepath.Join(t.TempDir(), "logind.conf.d")
	if d, err := bus.MaxDelay(t.Context()); err != nil || d != 5*time.Second {
		t.Fatalf("before: %s, %v", d, err)
	}
	if err := bus.Raise(t.Context(), dir, 30500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "99-kubelet.conf"))
	if err != nil || !strings.Contains(string(text), "[Login]\nInhibitDelayMaxSec=31\n") {
		t.Errorf("the file says %q (%v)", text, err)
	}
	// Another file of the directory may set a lower delay. Raise returns that as an error, and waits no longer than its context.
	b.mu.Lock()
	b.raised = 9_000_000
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := bus.Raise(ctx, dir, time.Minute); err == nil || !strings.Contains(err.Error(), "it is 9s") {
		t.Errorf("a delay that stays: %v", err)
	}
}

func TestAnswersThatAreInvalid(t *testing.T) {
	t.Parallel()
	b := newFakeBus(t)
	bus := open(t, b)
	b.mu.Lock()
	b.preparing = true
	b.mu.Unlock()
	if is, err := bus.Preparing(t.Context()); err != nil || !is {
		t.Errorf("preparing: %t, %v", is, err)
	}
	b.mu.Lock()
	b.odd = true
	b.mu.Unlock()
	if _, err := bus.Preparing(t.Context()); err == nil {
		t.Error("a word was taken for true or false")
	}
	if _, err := bus.MaxDelay(t.Context()); err == nil {
		t.Error("a word was taken for a time")
	}
	if _, err := logind.Open(t.Context(), "unix:path="+filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "connect to the system bus") {
		t.Errorf("no bus: %v", err)
	}
}

// If a bus accepts the connection and never answers, Open returns an error when the caller's context ends.
func TestASilentBus(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bus")
	listener, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := logind.Open(ctx, "unix:path="+file); err == nil {
		t.Error("a silent bus was opened")
	}
}
