package sdnotify

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Manager is the service manager that waits for news of this process. A nil Manager stands for no service manager: its methods do
// nothing.
type Manager struct {
	conn     *net.UnixConn
	watchdog time.Duration
}

// statusKept bounds the status text, in bytes: a manager refuses a datagram that is too large, and people read one line.
const statusKept = 512

// Open returns the manager that the environment names, by getenv; nil without an error where it names none.
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

// watchdogOf returns how long the manager waits for a sign of life; zero: for ever. A limit that is another process's does not count.
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

// Watchdog returns how long the manager waits for Alive before it kills the process; zero: it does not.
func (m *Manager) Watchdog() time.Duration {
	if m == nil {
		return 0
	}
	return m.watchdog
}

// Ready says that the service has started, with a line for people.
func (m *Manager) Ready(status string) error { return m.send("READY=1\nSTATUS=" + line(status)) }

// Status says how the service is, in one line for people.
func (m *Manager) Status(status string) error { return m.send("STATUS=" + line(status)) }

// Stopping says that the service ends.
func (m *Manager) Stopping() error { return m.send("STOPPING=1\nSTATUS=stopping") }

// Alive returns the sign of life that the watchdog waits for.
func (m *Manager) Alive() error { return m.send("WATCHDOG=1") }

// Close closes the socket.
func (m *Manager) Close() error {
	if m == nil {
		return nil
	}
	return m.conn.Close()
}

// send bounds the time as well: a manager that does not read must not hold up its service.
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

// line returns a text without the line ends that would begin another assignment.
func line(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' }), " ")
	return text[:min(len(text), statusKept)]
}
