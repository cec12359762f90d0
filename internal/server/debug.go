package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
)

// addDebugging adds the switches' endpoints: what is switched off says so.
func (s *Server) addDebugging(add func(http.HandlerFunc, ...string)) {
	en, src := &s.cfg.Enable, &s.cfg.Sources
	if en.SystemLog && src.SystemLogDir != "" {
		add(s.serveSystemLog, "GET /logs/")
	} else {
		add(disabled("logs endpoint is disabled."), "/logs/")
	}
	if en.Profiling {
		add(serveProfile, "GET /debug/pprof/")
	} else {
		add(disabled("profiling endpoint is disabled."), "/debug/pprof/")
	}
	if en.Flags && src.SetVerbosity != nil {
		add(s.serveVerbosity, "/debug/flags/v")
	} else {
		add(disabled("flags endpoint is disabled."), "/debug/flags/v")
	}
}

// serveProfile answers /debug/pprof.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// serveVerbosity answers PUT /debug/flags/v: the body is the new level of -v.
func (s *Server) serveVerbosity(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		http.Error(w, "unsupported http method, use PUT with the new value as the body", http.StatusNotAcceptable)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		http.Error(w, fmt.Sprintf("error reading request body: %v", err), http.StatusBadRequest)
		return
	}
	if err := s.cfg.Sources.SetVerbosity(strings.TrimSpace(string(body))); err != nil {
		http.Error(w, fmt.Sprintf("v: %v", err), http.StatusBadRequest)
		return
	}
	writeText(w)
	fmt.Fprintf(w, "successfully set -v to %s", strings.TrimSpace(string(body)))
}

// serveSystemLog answers /logs/: the files of the system's log directory. os.Root keeps symlinks from leaving it.
func (s *Server) serveSystemLog(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("query") {
		http.Error(w, "query: node log queries are not supported by this node; read files below /logs/", http.StatusNotImplemented)
		return
	}
	dir, err := os.OpenRoot(s.cfg.Sources.SystemLogDir)
	if err != nil {
		http.Error(w, fmt.Sprintf("open log directory: %v", err), http.StatusInternalServerError)
		return
	}
	defer dir.Close() //nolint:errcheck // only read
	http.StripPrefix("/logs/", http.FileServerFS(dir.FS())).ServeHTTP(w, r)
}
