package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// serveHealth answers /healthz: 200 "ok", or 500 with the checks that failed. "?verbose" lists all, "?exclude=NAME"
// leaves one out. The reason of a failure is shown at /healthz/NAME and in the log, not here.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) { s.answerHealth(w, r, s.checks) }

func (s *Server) answerHealth(w http.ResponseWriter, r *http.Request, checks []Check) {
	query := r.URL.Query()
	excluded := query["exclude"]
	var list strings.Builder
	failed := false
	for _, c := range checks {
		if i := slices.Index(excluded, c.Name); i >= 0 {
			excluded = slices.DeleteFunc(slices.Clone(excluded), func(n string) bool { return n == c.Name })
			fmt.Fprintf(&list, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		err := c.Func()
		s.metrics.checked(c.Name, err)
		if err != nil {
			failed = true
			s.cfg.Log.Info("health check failed", "check", c.Name, "err", err)
			fmt.Fprintf(&list, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&list, "[+]%s ok\n", c.Name)
	}
	if len(excluded) > 0 {
		fmt.Fprintf(&list, "warn: some health checks cannot be excluded: no matches for %q\n", excluded)
	}
	if failed {
		http.Error(w, list.String()+"healthz check failed", http.StatusInternalServerError)
		return
	}
	writeText(w)
	if !query.Has("verbose") {
		fmt.Fprint(w, "ok")
		return
	}
	fmt.Fprintf(w, "%shealthz check passed\n", list.String())
}

// serveCheck answers /healthz/NAME.
func serveCheck(c Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Func(); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		writeText(w)
		fmt.Fprint(w, "ok")
	})
}

// healthRoutes serves the health port. The port shows whether the process is healthy, and nothing about the pods of the node.
func (s *Server) healthRoutes() http.Handler {
	mux := http.NewServeMux()
	ping := s.checks[:1]
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) { s.answerHealth(w, r, ping) })
	mux.Handle("/healthz/ping", serveCheck(ping[0]))
	return mux
}

func writeText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
