package sdnotify

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Manager is the connection to the service manager of this process. The methods of a nil Manager, which means that there is no
// service manager, do nothing.
type Manager struct {
	conn     *net.UnixConn
	watchdog time.Duration
}

// statusKept is the longest status text, in bytes. A manager refuses large datagrams, and people read only one line.
const statusKept = 512

// Open returns the manager that the environment names, as getenv returns it. If the environment names none, it returns nil and no
// error.
func Open(getenv func(string) string) (*Manager, error) {
	path := getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@") {
		return nil, fmt.Errorf("NOTIFY_SOCKET=%q is neither a path nor an abstract name (@...)", path)
	}
	watchdog, err := watchdogOf(getenv)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("open the service manager's socket: %w", err)
	}
	return &Manager{conn: conn, watchdog: watchdog}, nil
}

// watchdogOf returns how long the manager waits for a sign of life; zero: for ever. It ignores a limit that is for another process.
func watchdogOf(getenv func(string) string) (time.Duration, error) {
	limit := getenv("WATCHDOG_USEC")
	if limit == "" {
		return 0, nil
	}
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0, nil
	}
	usec, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || usec <= 0 || usec > int64(24*time.Hour/time.Microsecond) {
		return 0, fmt.Errorf("WATCHDOG_USEC=%q is not a number of microseconds above 0, of a day at most", limit)
	}
	return time.Duration(usec) * time.Microsecond, nil
}

// Watchdog returns how long the manager waits for Alive before it kills the process; zero: the manager does not wait for it.
func (m *Manager) Watchdog() time.Duration {
	if m == nil {
		return 0
	}
	return m.watchdog
}

// Ready reports that the service has started. status is one line for people.
func (m *Manager) Ready(status string) error { return m.send("READY=1\nSTATUS=" + line(status)) }

// Status reports the state of the service in one line for people.
func (m *Manager) Status(status string) error { return m.send("STATUS=" + line(status)) }

// Stopping reports that the service is ending.
func (m *Manager) Stopping() error { return m.send("STOPPING=1\nSTATUS=stopping") }

// Alive sends the sign of life that the watchdog waits for.
func (m *Manager) Alive() error { return m.send("WATCHDOG=1") }

// Close closes the socket.
func (m *Manager) Close() error {
	if m == nil {
		return nil
	}
	return m.conn.Close()
}

// send sends a datagram. It waits only for a bounded time, because a manager that does not read must not block its service.
func (m *Manager) send(text string) error {
	if m == nil {
		return nil
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	if _, err := m.conn.Write([]byte(text)); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// line replaces the line ends in a text, because the text after a line end would count as another assignment. The result is valid UTF-8,
// because systemd ignores any other status.
func line(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' }), " ")
	return strings.ToValidUTF8(text[:min(len(text), statusKept)], "")
}
