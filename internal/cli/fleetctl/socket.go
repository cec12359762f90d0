package fleetctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/ctlsocket"
)

// State is the state of a fleet for clients of its socket.
type State struct {
	fleet.Status
	// Kubeconfig is the file with which users reach the cluster; "": they use their own.
	Kubeconfig string `json:"kubeconfig"`
	Server     string `json:"server"` // the address of the API server
	// Wanted is how many pods the fleet was asked to create.
	Wanted int `json:"podsWanted"`
	// Memory is the memory of the process, and MemoryPerNode its growth since the first node began, divided by the number of nodes.
	Memory        uint64 `json:"memoryBytes"`
	MemoryPerNode uint64 `json:"memoryPerNodeBytes"`
	Goroutines    int    `json:"goroutines"`
	// GoroutinesPerNode is the growth of Goroutines since the first node began, divided by the number of nodes.
	GoroutinesPerNode float64 `json:"goroutinesPerNode"`
	CPUSeconds        float64 `json:"cpuSeconds"` // of the process
}

// Watched is the state of a fleet for wherry fleet top.
type Watched struct {
	State
	// Attention has the nodes that need attention, the worst first, as many as the client asked for. AttentionAll is how many there are.
	Attention    []fleet.NodeStatus `json:"attention"`
	AttentionAll int                `json:"attentionAll"`
}

// mostAttention is the largest number of nodes in Watched.Attention.
const mostAttention = 10_000

// socketPath returns the socket of a fleet, or of one of the processes that share it.
func socketPath(asked, name, shard string) string {
	if asked != "" {
		return asked
	}
	return filepath.Join(socketDir(), socketName(name, shard))
}

// socketDir returns the directory of the sockets. Only this user may enter it.
func socketDir() string { return ctlsocket.Dir() }

// maxRequest bounds the body of a request to the socket in bytes. A scenario as a string of JSON may be twice as long as its file.
const maxRequest = 2*fleet.MaxTemplate + 4096

// control serves the requests of the commands.
type control struct {
	fleet *fleet.Fleet
	state func() State
	stop  func()
	play  func(name string, s *fleet.Scenario) error
}

// handler returns the socket's handler. It refuses processes of containers and of other users.
func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { answer(w, c.state()) })
	mux.HandleFunc("GET /nodes", func(w http.ResponseWriter, _ *http.Request) { answer(w, c.fleet.Nodes()) })
	mux.HandleFunc("GET /top", func(w http.ResponseWriter, r *http.Request) {
		limit, err := strconv.Atoi(r.URL.Query().Get("nodes"))
		if err != nil || limit < 0 || limit > mostAttention {
			http.Error(w, fmt.Sprintf("nodes: use a number from 0 to %d", mostAttention), http.StatusBadRequest)
			return
		}
		top := Watched{State: c.state()}
		top.Attention, top.AttentionAll = c.fleet.Attention(limit)
		answer(w, top)
	})
	mux.HandleFunc("POST /scale", func(w http.ResponseWriter, r *http.Request) {
		var s scaleRequest
		if !read(w, r, &s) {
			return
		}
		if err := c.fleet.Scale(s.Group, s.Count); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, c.state())
	})
	mux.HandleFunc("POST /fault", func(w http.ResponseWriter, r *http.Request) {
		var q faultRequest
		if !read(w, r, &q) {
			return
		}
		var done fleet.Injected
		var err error
		if q.Heal {
			done.On, err = c.fleet.Heal(q.Nodes)
		} else {
			done, err = c.fleet.InjectEach(q.Nodes, q.Fault)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, done)
	})
	mux.Handle("GET /console/", c.fleet.Console())
	mux.HandleFunc("POST /scenario", func(w http.ResponseWriter, r *http.Request) {
		var q playRequest
		if !read(w, r, &q) {
			return
		}
		s, err := fleet.ParseScenario(q.File, []byte(q.Text))
		if err == nil {
			err = c.play(q.File, s)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, c.state())
	})
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		c.stop()
		answer(w, c.state())
	})
	return ctlsocket.Guard(mux)
}

// scaleRequest asks for another number of nodes.
type scaleRequest struct {
	Group string `json:"group"`
	Count int    `json:"count"`
}

// faultRequest asks for a fault, or for the end of faults.
type faultRequest struct {
	Nodes fleet.Selector `json:"nodes"`
	Fault fleet.Fault    `json:"fault"`
	Heal  bool           `json:"heal"`
}

// playRequest asks the fleet to play a scenario. It has the text of a scenario file.
type playRequest struct {
	File string `json:"file"`
	Text string `json:"text"`
}

func answer(w http.ResponseWriter, v any) { ctlsocket.Answer(w, v) }

// read decodes the body of a request. If that fails, it answers the request with an error and returns false.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	return ctlsocket.Read(w, r, maxRequest, into)
}

// Client talks to the fleet that listens on a socket. Its methods must not be called concurrently.
type Client struct {
	Name   string // the fleet's name; "": the fleet "fleet", or the only one on this machine
	Shard  string // the process, if several share the fleet; "": the only one on this machine
	Socket string // "": the usual one of Name and Shard

	found string // the socket of the fleet that has answered: what is asked next is about the same fleet, also when others have ended
}

// Path returns the path of the fleet's socket. The error says that several fleets could be meant, or which others run.
func (c *Client) Path() (string, error) {
	switch {
	case c.Socket != "":
		return c.Socket, nil
	case c.found != "":
		return c.found, nil
	}
	return find(socketDir(), c.Name, c.Shard)
}

// errNone means that no fleet listens.
var errNone = errors.New("no fleet runs")

// ask sends a request and decodes the answer.
func (c *Client) ask(ctx context.Context, method, path string, body, into any) error {
	socket, err := c.Path()
	if err != nil {
		return err
	}
	peer := ctlsocket.Peer{
		Socket: socket, What: "the fleet", None: errNone, Hint: "start one with wherry fleet, or name another with --name, --shard or --socket",
	}
	if err := peer.Ask(ctx, method, path, body, into); err != nil {
		return err
	}
	c.found = socket
	return nil
}

// State returns the fleet's state.
func (c *Client) State(ctx context.Context) (s State, err error) {
	err = c.ask(ctx, http.MethodGet, "/state", nil, &s)
	return s, err
}

// Watch returns the state of the fleet, with at most this many of the nodes that need attention.
func (c *Client) Watch(ctx context.Context, nodes int) (top Watched, err error) {
	err = c.ask(ctx, http.MethodGet, "/top?nodes="+strconv.Itoa(nodes), nil, &top)
	return top, err
}

// Nodes returns the state of each node.
func (c *Client) Nodes(ctx context.Context) (nodes []fleet.NodeStatus, err error) {
	err = c.ask(ctx, http.MethodGet, "/nodes", nil, &nodes)
	return nodes, err
}

// Scale sets the number of nodes of a group. group may be "" if the fleet has only one group.
func (c *Client) Scale(ctx context.Context, group string, count int) (s State, err error) {
	err = c.ask(ctx, http.MethodPost, "/scale", scaleRequest{group, count}, &s)
	return s, err
}

// Stop makes the fleet end, as an interrupt does.
func (c *Client) Stop(ctx context.Context) (s State, err error) {
	err = c.ask(ctx, http.MethodPost, "/stop", nil, &s)
	return s, err
}

// Inject makes a fault happen on the chosen nodes.
func (c *Client) Inject(ctx context.Context, nodes fleet.Selector, fault fleet.Fault) (done fleet.Injected, err error) {
	err = c.ask(ctx, http.MethodPost, "/fault", faultRequest{Nodes: nodes, Fault: fault}, &done)
	return done, err
}

// Heal ends the faults of the chosen nodes, and returns their names.
func (c *Client) Heal(ctx context.Context, nodes fleet.Selector) (names []string, err error) {
	var done fleet.Injected
	err = c.ask(ctx, http.MethodPost, "/fault", faultRequest{Nodes: nodes, Heal: true}, &done)
	return done.On, err
}

// Play makes the events of a scenario happen. file is the name of the file with this text, for messages.
func (c *Client) Play(ctx context.Context, file string, text []byte) error {
	var s State
	return c.ask(ctx, http.MethodPost, "/scenario", playRequest{file, string(text)}, &s)
}

// Listens reports whether a process accepts connections on the fleet's socket.
func (c *Client) Listens(ctx context.Context) bool {
	path, err := c.Path()
	return err == nil && listens(ctx, path)
}
