package proxyctl

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/ctlsocket"
	"github.com/wherry-node/wherry/internal/edge/criproxy"
)

// State is the state of a proxy for clients of its control socket.
type State struct {
	criproxy.State
	Listen  string        `json:"listen"`
	Runtime string        `json:"runtime"`
	Running time.Duration `json:"running"` // for how long
	// RecordLost is how many lines the record has lost.
	RecordLost uint64 `json:"recordLost"`
}

// maxRequest bounds the body of a request in bytes. A scenario as a string of JSON may be twice as long as its file.
const maxRequest = 2*fleet.MaxTemplate + 4096

// control serves the requests of the commands.
type control struct {
	proxy           *criproxy.Proxy
	listen, runtime string
	began           time.Time
	record          *record // nil: there is none
	plays           plays
}

func (c *control) state() State {
	s := State{State: c.proxy.State(), Listen: c.listen, Runtime: c.runtime, Running: time.Since(c.began)}
	if c.record != nil {
		s.RecordLost = c.record.lost.Load()
	}
	return s
}

// healRequest asks for the end of faults.
type healRequest struct {
	Method string `json:"method"` // "": of all
}

// playRequest asks the proxy to play a scenario. It has the text of a scenario file.
type playRequest struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// handler returns the handler of the control socket. It refuses processes of containers and of other users.
func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { ctlsocket.Answer(w, c.state()) })
	mux.HandleFunc("POST /fault", func(w http.ResponseWriter, r *http.Request) {
		var q Injection
		if !ctlsocket.Read(w, r, maxRequest, &q) {
			return
		}
		f, err := q.fault()
		var text string
		if err == nil {
			text, err = c.proxy.Inject(f)
		}
		reply(w, []string{text}, err)
	})
	mux.HandleFunc("POST /heal", func(w http.ResponseWriter, r *http.Request) {
		var q healRequest
		if !ctlsocket.Read(w, r, maxRequest, &q) {
			return
		}
		texts, err := c.proxy.Heal(q.Method)
		reply(w, texts, err)
	})
	mux.HandleFunc("POST /scenario", func(w http.ResponseWriter, r *http.Request) {
		var q playRequest
		if !ctlsocket.Read(w, r, maxRequest, &q) {
			return
		}
		s, err := parseScenario(q.File, []byte(q.Text))
		if err == nil {
			err = c.plays.begin(q.File, s)
		}
		reply(w, nil, err)
	})
	return ctlsocket.Guard(mux)
}

// reply answers a request with texts, or with its error.
func reply(w http.ResponseWriter, texts []string, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctlsocket.Answer(w, texts)
}

// errNone means that no proxy listens.
var errNone = errors.New("no CRI proxy runs")

// Client talks to the proxy that listens on a control socket.
type Client struct {
	Socket string // "": the usual one
}

// ask sends a request and decodes the answer.
func (c *Client) ask(ctx context.Context, method, path string, body, into any) error {
	peer := ctlsocket.Peer{Socket: socketPath(c.Socket), What: "the CRI proxy", None: errNone, Hint: "start one with wherry cri proxy, or name its socket with --socket"}
	return peer.Ask(ctx, method, path, body, into)
}

// State returns the proxy's state.
func (c *Client) State(ctx context.Context) (s State, err error) {
	err = c.ask(ctx, http.MethodGet, "/state", nil, &s)
	return s, err
}

// Inject makes a fault happen, and returns a text about it.
func (c *Client) Inject(ctx context.Context, in Injection) (texts []string, err error) {
	err = c.ask(ctx, http.MethodPost, "/fault", in, &texts)
	return texts, err
}

// Heal ends the faults of a method, or all faults if method is "". It returns texts about them.
func (c *Client) Heal(ctx context.Context, method string) (texts []string, err error) {
	err = c.ask(ctx, http.MethodPost, "/heal", healRequest{method}, &texts)
	return texts, err
}

// Play makes the events of a scenario happen. file is the name of the file with this text, for messages.
func (c *Client) Play(ctx context.Context, file string, text []byte) error {
	var texts []string
	return c.ask(ctx, http.MethodPost, "/scenario", playRequest{file, string(text)}, &texts)
}
