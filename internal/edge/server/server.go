package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/edge/server/nodelog"
)

// Server answers the node's API. Its methods may be called concurrently.
type Server struct {
	cfg     Config
	metrics *metrics
	checks  []Check
	dial    dialFunc
	logs    *nodelog.Log // answers node log queries; nil: they are off
	// strangers logs requests with bad credentials.
	strangers *strangers
	settling  settling

	handler, readOnly http.Handler
}

// New returns a server. It fails if a required field is missing, a pattern of Sources.Extra is bad, or the Registerer
// already has the metrics of another server.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, metrics: m, dial: dialURL, strangers: newStrangers()}
	if cfg.Dial != nil {
		s.dial = cfg.Dial
	}
	if cfg.Enable.SystemLogQuery && cfg.Sources.SystemLogDir != "" {
		s.logs = nodelog.New(cfg.Sources.Journalctl, hostfs.UntrustedFS(cfg.Sources.SystemLogDir))
	}
	s.checks = append([]Check{
		{Name: "ping", Func: func() error { return nil }},
		// Upstream's "log" check fails when its log is no longer flushed. slog writes each line at once, so this check always
		// succeeds.
		{Name: "log", Func: func() error { return nil }},
	}, cfg.Checks...)

	if _, _, err := s.routes(); err != nil { // only a check: the first request creates the routes that are used, so that a node without requests does not hold them
		return nil, err
	}
	routes := sync.OnceValues(func() (all, open http.Handler) {
		all, open, _ = s.routes()
		return all, open
	})
	s.handler = s.count("readwrite", s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, _ := routes()
		all.ServeHTTP(w, r)
	})))
	s.readOnly = s.count("readonly", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, open := routes()
		open.ServeHTTP(w, r)
	}))
	return s, nil
}

// routes returns the endpoints of the secure port, and those of the read-only port.
func (s *Server) routes() (all, open http.Handler, err error) {
	secure, public := http.NewServeMux(), http.NewServeMux()
	routes := s.openRoutes()
	err = errors.Join(mount(secure, routes), mount(secure, s.guardedRoutes()), mount(public, routes))
	return secure, public, err
}

// Handler returns the API of port 10250: every request to it is authenticated and authorised. It has no state outside
// the Server, so a listener may be shared by many servers. Streams live as long as the request's context. The caller
// begins to serve it at once.
func (s *Server) Handler() http.Handler {
	s.settling.begin()
	return s.handler
}

// ReadOnlyHandler returns the API of the read-only port: health, pods, stats and metrics for anybody.
func (s *Server) ReadOnlyHandler() http.Handler { return s.readOnly }

// HealthHandler returns the API of port 10248: /healthz and /healthz/ping, for anybody.
func (s *Server) HealthHandler() http.Handler { return s.healthRoutes() }

// route is an endpoint: a ServeMux pattern and its handler.
type route struct {
	pattern string
	handler http.Handler
}

// mount adds routes to a mux. It returns an error where the mux panics: for a bad pattern, or for a pattern that conflicts with
// another pattern.
func mount(mux *http.ServeMux, routes []route) (err error) {
	var pattern string
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("server: pattern %q of Sources.Extra: %v", pattern, p)
		}
	}()
	for _, r := range routes {
		pattern = r.pattern
		mux.Handle(r.pattern, r.handler)
	}
	return nil
}

// openRoutes returns the endpoints that the secure port and the read-only port have in common.
func (s *Server) openRoutes() []route {
	src := &s.cfg.Sources
	routes := []route{{"/healthz", http.HandlerFunc(s.serveHealth)}}
	for _, c := range s.checks {
		routes = append(routes, route{"/healthz/" + c.Name, serveCheck(c)})
	}
	routes = append(routes, route{"GET /pods", http.HandlerFunc(s.servePods)}, route{"GET /pods/{$}", http.HandlerFunc(s.servePods)})
	routes = append(routes, route{"GET /metrics/slis", http.HandlerFunc(s.serveSLIs)})
	for _, r := range []route{
		{"GET /stats/summary", src.Stats},
		{"GET /metrics/resource", src.Resource},
		{"GET /metrics/cadvisor", src.CAdvisor},
		{"GET /metrics/probes", src.Probes},
	} {
		if r.handler != nil {
			routes = append(routes, r)
		}
	}
	if src.Metrics != nil {
		routes = append(routes, route{"GET /metrics", serveMetrics(src.Metrics)})
	}
	return routes
}

// guardedRoutes returns the endpoints that only the secure port has.
func (s *Server) guardedRoutes() (routes []route) {
	add := func(h http.HandlerFunc, patterns ...string) {
		for _, p := range patterns {
			routes = append(routes, route{p, h})
		}
	}
	if !s.cfg.Enable.Debugging {
		add(disabled("Debug endpoints are disabled."), "/run/", "/exec/", "/attach/", "/portForward/",
			"/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/")
		return routes
	}
	if s.cfg.Runtime != nil {
		const ofContainer, ofInstance = "/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"
		const ofPod, ofPodInstance = "/{namespace}/{pod}", "/{namespace}/{pod}/{uid}"
		add(s.wait(s.serveRun), "POST /run"+ofContainer, "POST /run"+ofInstance)
		for _, m := range []string{"GET ", "POST "} {
			add(s.wait(s.serveExec), m+"/exec"+ofContainer, m+"/exec"+ofInstance)
			add(s.wait(s.serveAttach), m+"/attach"+ofContainer, m+"/attach"+ofInstance)
			add(s.wait(s.servePortForward), m+"/portForward"+ofPod, m+"/portForward"+ofPodInstance)
		}
	}
	if s.cfg.Sources.Checkpoint != nil {
		add(s.wait(s.serveCheckpoint), "POST /checkpoint/{namespace}/{pod}/{container}")
	}
	add(s.wait(s.serveLogs), "GET /containerLogs/{namespace}/{pod}/{container}")
	s.addConsole(add)
	s.addZPages(add)
	s.addDescriptions(add)
	s.addDebugging(add)
	for pattern, h := range s.cfg.Sources.Extra {
		routes = append(routes, route{pattern, h})
	}
	return routes
}

// addDescriptions adds the endpoints that describe the node: its configuration and the pods of its runtime.
func (s *Server) addDescriptions(add func(http.HandlerFunc, ...string)) {
	src := &s.cfg.Sources
	if src.RunningPods != nil {
		add(s.serveRunningPods, "GET /runningpods", "GET /runningpods/{$}")
	}
	if src.Configz != nil {
		add(s.serveConfigz, "/configz")
	}
}

// addConsole adds the endpoints of the console, a web page: the page with its stream of data, and the container logs that the page shows.
// A client that may see the page needs no other right for these endpoints.
func (s *Server) addConsole(add func(http.HandlerFunc, ...string)) {
	page := s.cfg.Sources.Console
	if page == nil {
		return
	}
	add(page.ServeHTTP, "GET /console/")
	add(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "console/", http.StatusFound) }, "GET /console")
	add(s.serveLogs, "GET /console/logs/{namespace}/{pod}/{container}")
}

// addZPages adds the endpoints that describe the process: the flags in effect, and its state.
func (s *Server) addZPages(add func(http.HandlerFunc, ...string)) {
	if s.cfg.Enable.Flagz && s.cfg.Sources.Flags != nil {
		add(s.serveFlagz, "GET /flagz")
	}
	if s.cfg.Enable.Statusz {
		add(s.serveStatusz, "GET /statusz")
	}
}

// disabled answers 405 with a reason, as clients expect it for an endpoint that is switched off.
func disabled(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) }
}

// root returns the first element of a path, and for a path below /metrics/ the first two elements. Metrics use the result as the
// label "path".
func root(path string) string {
	path = strings.TrimPrefix(path, "/")
	first, rest, _ := strings.Cut(path, "/")
	if first == "metrics" && rest != "" {
		second, _, _ := strings.Cut(rest, "/")
		return first + "/" + second
	}
	return first
}
