package podctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/edge/console"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// Console serves the console (a web page) of a node or of a fleet to one browser on this machine. The browser gets access by a link that
// works once.
type Console struct {
	// Socket is the control socket of an agent or of a fleet; "": the agent's default sockets. It is not used if Node is set.
	Socket string
	// Node is the name of a node in the cluster of Config. The console then reaches the node through the API server. If Node is "", the
	// console uses Socket.
	Node   string
	Config *rest.Config
	Port   int // on 127.0.0.1; 0: any free port
}

// Run serves the console until ctx ends. It prints a link, and another link for each line of the standard input.
func (c *Console) Run(ctx context.Context, s Streams) error {
	base, transport, name, err := c.upstream(ctx)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)))
	if err != nil {
		return fmt.Errorf("open a port for the console: %w", err)
	}
	login := console.NewLogin(l.Addr())
	fmt.Fprintf(s.Out, "The console of %s. Open this link in a browser on this machine:\n\n  %s\n\nIt works once, within ten minutes. Press Enter for another link, Ctrl-C to end.\n", name, login.Link())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var served error
	var group sync.WaitGroup
	group.Go(func() {
		defer cancel()
		served = server.Serve(ctx, l, login.Guard(relay(base, transport, c.Node)), server.ServeOptions{Log: slog.New(slog.DiscardHandler)})
	})
	go func() { // Run does not wait for this goroutine, because a read from a terminal cannot be canceled
		for in := bufio.NewScanner(s.In); in.Scan() && ctx.Err() == nil; {
			fmt.Fprintf(s.Out, "  %s\n", login.Link())
		}
	}()
	group.Wait()
	return served
}

// upstream returns the server from which relay gets the data of the console: its base URL, a transport to it, and its name for the user.
func (c *Console) upstream(ctx context.Context) (*url.URL, http.RoundTripper, string, error) {
	if c.Node != "" {
		transport, err := rest.TransportFor(c.Config)
		if err != nil {
			return nil, nil, "", fmt.Errorf("make API client: %w", err)
		}
		base, _, err := rest.DefaultServerUrlFor(c.Config)
		if err != nil {
			return nil, nil, "", fmt.Errorf("make API client: %w", err)
		}
		base.Path = "/" + strings.TrimPrefix(base.Path, "/") // HTTP/2 refuses a request whose path does not begin with a slash
		return base.JoinPath("api/v1/nodes", url.PathEscape(c.Node), "proxy"), transport, "node " + c.Node, nil
	}
	a, err := openClient(ctx, c.Socket)
	if err != nil {
		return nil, nil, "", err
	}
	if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.socket); err == nil {
		_ = conn.Close()
	} else if c.Socket != "" {
		return nil, nil, "", noAgent{a.socket}
	}
	return &url.URL{Scheme: "http", Host: "agent", Path: "/"}, a.transport, "the node or fleet at " + a.socket, nil
}

// relay serves the page from this program, and passes requests for data on to base, whose path is not empty. Nothing else of the
// node's API can be reached. node is the name of a node that is reached through an API server, or "".
func relay(base *url.URL, transport http.RoundTripper, node string) http.Handler {
	assets := console.Assets()
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // send each part of the event stream and of a log to the browser at once
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			to := base.JoinPath(r.In.URL.EscapedPath())
			to.RawQuery = r.In.URL.RawQuery
			r.Out.URL, r.Out.Host = to, ""
			r.Out.Header = http.Header{"Accept": r.In.Header["Accept"]} // pass on neither the browser's cookies nor its origin
		},
		ModifyResponse: func(r *http.Response) error {
			kept := http.Header{"Cache-Control": {"no-store"}}
			if kind := r.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/event-stream") {
				kept.Set("Content-Type", kind)
			} else {
				kept.Set("Content-Type", "text/plain; charset=utf-8") // never HTML, whatever Content-Type the node sends
			}
			r.Header = kept
			if r.StatusCode == http.StatusForbidden && node != "" {
				body, err := io.ReadAll(io.LimitReader(r.Body, mostAnswer))
				_ = r.Body.Close()
				if err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
				text := mayNotAsk(node, saidBy(body))
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, context.Canceled) && r.Context().Err() == nil {
				http.Error(w, "the node cannot be reached: "+err.Error(), http.StatusBadGateway)
			}
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, console.Path)
		if !ok || path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") {
			if r.URL.Path == "/" {
				http.Redirect(w, r, console.Path, http.StatusSeeOther)
				return
			}
			http.NotFound(w, r)
			return
		}
		if below, ok := strings.CutPrefix(rest, "nodes/"); ok { // the console of a node of a fleet
			_, rest, _ = strings.Cut(below, "/")
		}
		if rest == "stream" || strings.HasPrefix(rest, "logs/") {
			proxy.ServeHTTP(w, r)
			return
		}
		r.URL.Path = rest
		assets.ServeHTTP(w, r)
	})
}
