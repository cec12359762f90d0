package ctlsocket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/core/yamldoc"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// askTimeout bounds a request with its answer.
const askTimeout = 30 * time.Second

const (
	// maxText bounds the text of an error in bytes.
	maxText = 1 << 20
	// maxAnswer bounds an answer in bytes. A node of a fleet needs less than 2 KiB, and a fleet has at most 100,000 nodes.
	maxAnswer = 256 << 20
)

// Dir returns the directory of the control sockets. Only this user may enter it.
func Dir() string {
	if os.Geteuid() == 0 {
		return config.SocketDir
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "wherry")
	}
	return filepath.Join(os.TempDir(), "wherry-"+strconv.Itoa(os.Geteuid()))
}

// Guard returns a handler that passes on only requests of processes of this machine and this user, or of root.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := server.LocalPeer(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Answer answers a request with a value.
func Answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error means that the client is gone
}

// Read decodes the body of a request, which has at most limit bytes. If that fails, it answers the request with an error and returns false.
func Read(w http.ResponseWriter, r *http.Request, limit int64, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		text := yamldoc.JSONText(err)
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			text = fmt.Sprintf("it has more than %d bytes", limit)
		}
		http.Error(w, "the request cannot be read: "+text, http.StatusBadRequest)
		return false
	}
	return true
}

// Peer is a command that listens on a control socket.
type Peer struct {
	Socket string
	What   string // for messages: the fleet
	// None is the error if nothing listens, and Hint says what to do then.
	None error
	Hint string
}

// Ask sends a request to the command and decodes the answer. If the command refuses the request, the error has the command's text.
func (p Peer) Ask(ctx context.Context, method, path string, body, into any) error {
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", p.Socket)
	}}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://local"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := t.RoundTrip(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED): // other errors, for example a wrong user, do not mean that nothing listens
		return fmt.Errorf("%w at %s: %s", p.None, p.Socket, p.Hint)
	case err != nil:
		return fmt.Errorf("ask %s at %s: %w", p.What, p.Socket, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, maxText))
		return errors.New(strings.TrimSpace(string(why)))
	}
	if err := decode(resp.Body, maxAnswer, into); err != nil {
		return fmt.Errorf("read the answer of %s at %s: %w", p.What, p.Socket, err)
	}
	return nil
}

// decode decodes an answer of at most limit bytes.
func decode(r io.Reader, limit int64, into any) error {
	bounded := &io.LimitedReader{R: r, N: limit}
	err := json.NewDecoder(bounded).Decode(into)
	switch {
	case err != nil && bounded.N <= 0:
		return fmt.Errorf("it has more than %d bytes", limit)
	case err == nil:
		return nil
	}
	if text := yamldoc.JSONText(err); text != err.Error() {
		return errors.New(text)
	}
	return err // not of the JSON, but of the connection
}
