package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// addDebugging adds the endpoints of the switches SystemLog, Profiling and Flags in Enable. An endpoint that is switched off answers that
// it is disabled.
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

// serveSystemLog answers /logs/ with the regular files of the system's log directory. A pod may mount that directory as a volume
// and put anything there: the server follows no link out of it, and answers with an error, at once, for anything that is not a
// regular file or directory. A browser runs no script of such a file: the script would have the origin of this server, and so could run
// commands in containers with the client certificate of its reader (crossOrigin).
func (s *Server) serveSystemLog(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", "sandbox")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	files := hostfs.UntrustedFS(s.cfg.Sources.SystemLogDir)
	if s.logs != nil {
		if r = s.logQuery(w, r, files); r == nil {
			return
		}
	} else if r.URL.Query().Has("query") {
		http.Error(w, "query: this node answers no log queries: set enableSystemLogQuery: true, or read files below /logs/", http.StatusNotImplemented)
		return
	}
	if text := whyNot(files, strings.Trim(strings.TrimPrefix(r.URL.Path, "/logs/"), "/")); text != "" {
		http.Error(w, text, http.StatusBadRequest)
		return
	}
	http.StripPrefix("/logs/", http.FileServerFS(files)).ServeHTTP(w, r)
}

// whyNot says why a path of the log directory cannot be shown. It returns "" for a file that does not exist, because the file server
// answers 404 for a missing file.
func whyNot(files fs.FS, path string) string {
	f, err := files.Open(cmp.Or(path, "."))
	if err == nil {
		defer f.Close() //nolint:errcheck // only opened
		if dir, ok := f.(fs.ReadDirFile); ok {
			_, err = dir.ReadDir(-1)
		}
	}
	switch {
	case errors.Is(err, hostfs.ErrNotRegular):
		return fmt.Sprintf("%s cannot be read: only files and directories are served, and this is neither", path)
	case errors.Is(err, hostfs.ErrEscapes):
		return fmt.Sprintf("%s cannot be read: a symbolic link leads out of the log directory", path)
	case errors.Is(err, hostfs.ErrTooLarge):
		return fmt.Sprintf("%s cannot be listed: the directory has too many entries; ask for a file by its name", path)
	}
	return ""
}
