package vm

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeGuest is a guest agent that serves a socket. Its files are in memory, and its programs are Go functions.
type fakeGuest struct {
	t      *testing.T
	socket string
	end    func() // closes the socket and the connection, as QEMU does when it ends
	// before is sent at the start of each connection, as if it were left from an earlier connection.
	before string
	// deaf returns true if the guest agent must ignore a request. If deaf is nil, every request gets an answer.
	deaf func(execute string) bool

	// code is the exit code of every program, out its output ("": "out"), and program is called for each one, with its arguments, under the lock.
	code    int
	out     string
	program func(args []string)

	mu    sync.Mutex
	conn  net.Conn // the last connection
	files map[string][]byte
	open  map[int64]string
	at    map[int64]int
	ran   [][]string
	polls int
}

func newFakeGuest(t *testing.T) *fakeGuest {
	t.Helper()
	g := &fakeGuest{t: t, code: 3, socket: filepath.Join(t.TempDir(), "a.sock"), files: map[string][]byte{}, open: map[int64]string{}, at: map[int64]int{}}
	listener, err := net.Listen("unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	g.end = func() {
		_ = listener.Close()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.conn != nil {
			_ = g.conn.Close()
		}
	}
	t.Cleanup(g.end)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			g.conn = conn
			g.mu.Unlock()
			g.serve(conn) // one connection at a time, as QEMU does
		}
	}()
	return g
}

func (g *fakeGuest) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write([]byte(g.before))
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r struct {
			Execute   string
			Arguments json.RawMessage
		}
		if json.Unmarshal(bytes.TrimLeft(line, "\xff"), &r) != nil || g.deaf != nil && g.deaf(r.Execute) {
			continue
		}
		out, refused := g.answer(r.Execute, r.Arguments)
		data, _ := json.Marshal(map[string]any{"return": out})
		if refused != "" {
			data, _ = json.Marshal(map[string]any{"error": map[string]string{"class": "GenericError", "desc": refused}})
		}
		if r.Execute == "guest-sync-delimited" {
			data = append([]byte{0xff}, data...)
		}
		_, _ = conn.Write(append(data, '\n'))
	}
}

func (g *fakeGuest) answer(execute string, arguments json.RawMessage) (out any, refused string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var a struct {
		ID, PID, Handle int64
		Path, Mode      string
		Arg             []string
		Count, Offset   int
		Data            []byte `json:"buf-b64"`
	}
	_ = json.Unmarshal(arguments, &a)
	switch execute {
	case "guest-sync-delimited":
		return a.ID, ""
	case "guest-ping", "guest-file-close":
		return map[string]any{}, ""
	case "guest-exec":
		g.ran = append(g.ran, append([]string{a.Path}, a.Arg...))
		if g.program != nil {
			g.program(g.ran[len(g.ran)-1])
		}
		return map[string]any{"pid": len(g.ran)}, ""
	case "guest-exec-status":
		if g.polls++; g.polls%3 != 0 {
			return map[string]any{"exited": false}, ""
		}
		return map[string]any{"exited": true, "exitcode": g.code, "out-data": []byte(cmp.Or(g.out, "out")), "err-data": []byte("err")}, ""
	case "guest-file-open":
		if _, there := g.files[a.Path]; a.Mode == "r" && !there {
			return nil, "No such file or directory"
		}
		handle := int64(len(g.open) + 1)
		g.open[handle] = a.Path
		return handle, ""
	case "guest-file-write":
		g.files[g.open[a.Handle]] = append(g.files[g.open[a.Handle]], a.Data...)
		return map[string]any{"count": len(a.Data), "eof": false}, ""
	case "guest-file-seek":
		g.at[a.Handle] = a.Offset
		return map[string]any{"position": a.Offset, "eof": false}, ""
	case "guest-file-read":
		data := g.files[g.open[a.Handle]][g.at[a.Handle]:]
		data = data[:min(len(data), a.Count)]
		g.at[a.Handle] += len(data)
		return map[string]any{"count": len(data), "buf-b64": data, "eof": len(data) == 0}, ""
	}
	return nil, "The command " + execute + " has not been found"
}

func TestRunWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t)
	a := NewAgent(g.socket)
	r, err := a.Run(t.Context(), time.Minute, "/bin/x", "a", "b c")
	if err != nil || r != (Result{3, "out", "err"}) {
		t.Errorf("it ended as %+v, %v", r, err)
	}
	if got := fmt.Sprint(g.ran); got != "[[/bin/x a b c]]" || g.polls != 3 {
		t.Errorf("the guest ran %s, asked %d times", got, g.polls)
	}
	_, err = a.Shell(t.Context(), time.Minute, "false") // with a second agent it would wait until the first one's connection is collected
	if err == nil || !strings.Contains(err.Error(), "exit code 3: errout") {
		t.Errorf("a script that fails: %v", err)
	}
}

// Data that is left from an earlier connection does not count as an answer to a request.
func TestAnswersOfAnEarlierConnectionAreSkipped(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t)
	g.before = "{\"return\": {\"pid\": 99}}\n{\"return\": 7}\ngarbage \xff{\"return\": 1}\n\"half an ans\n"
	a := NewAgent(g.socket)
	if err := a.Ping(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if _, err := a.Run(t.Context(), time.Minute, "/bin/x"); err != nil {
		t.Errorf("after a connection was closed: %v", err)
	}
}

func TestSilenceEndsWithTheBoundAndTheNextRequestConnectsAgain(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t)
	var deaf sync.Once
	g.deaf = func(execute string) (never bool) {
		if execute == "guest-ping" {
			deaf.Do(func() { never = true })
		}
		return never
	}
	a := NewAgent(g.socket)
	err := a.Ping(t.Context(), 200*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "ask the guest for a sign of life: not in 200ms") {
		t.Errorf("a guest that does not answer: %v", err)
	}
	if err := a.Ping(t.Context(), time.Minute); err != nil {
		t.Errorf("the next request: %v", err)
	}
	if err := NewAgent(filepath.Join(t.TempDir(), "none")).Ping(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "connect to the guest agent") {
		t.Errorf("no socket: %v", err)
	}
}

func TestFilesGoInAndOut(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t)
	a := NewAgent(g.socket)
	data := bytes.Repeat([]byte("0123456789abcdef"), 3*chunk/16+1)
	if err := a.CopyIn(t.Context(), "/etc/x", 0o600, data); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("the mode is set by a command, and the fake one fails: %v", err)
	}
	if got := fmt.Sprint(g.ran); got != "[[/bin/sh -ec chmod 600 '/etc/x.copying'; mv -f '/etc/x.copying' '/etc/x']]" {
		t.Errorf("the guest ran %s", got)
	}
	back, err := a.CopyOut(t.Context(), "/etc/x.copying", len(data))
	if err != nil || !bytes.Equal(back, data) {
		t.Errorf("%d of %d bytes came back (%v)", len(back), len(data), err)
	}
	if _, err := a.CopyOut(t.Context(), "/etc/x.copying", len(data)-1); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a file beyond the bound: %v", err)
	}
	_, err = a.CopyOut(t.Context(), "/none", 10)
	if err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := a.Ping(t.Context(), time.Minute); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
}

func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	if _, err := readLine(bufio.NewReader(strings.NewReader(strings.Repeat("x", 5000)+"\n")), 4999); err == nil {
		t.Error("a line beyond the bound was read")
	}
	line, err := readLine(bufio.NewReader(strings.NewReader(strings.Repeat("x", 5000)+"\nrest")), 5001)
	if err != nil || len(line) != 5001 {
		t.Errorf("%d bytes were read (%v)", len(line), err)
	}
}
