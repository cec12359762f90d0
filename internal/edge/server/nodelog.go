package server

import (
	"cmp"
	"compress/gzip"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/edge/server/nodelog"
)

// logQuery handles a request for /logs/. It returns the request that the caller must serve: the same request if it has no query, or a
// request for the path of the file if the query names an existing file. It answers all other requests itself, and returns nil: queries for
// the logs of services, queries for a missing file, and bad queries.
func (s *Server) logQuery(w http.ResponseWriter, r *http.Request, files fs.FS) *http.Request {
	q, bad := nodelog.Parse(r.URL.Query())
	switch {
	case bad != nil && bad.Status == http.StatusBadRequest:
	case bad == nil && q == nil:
		return r
	case r.URL.Path != "/logs/":
		bad = &nodelog.Error{Status: http.StatusNotAcceptable, Text: "path not allowed in query mode"}
	case bad == nil && q.File != "":
		name := strings.Trim(q.File, "/")
		if _, err := fs.Stat(files, cmp.Or(name, ".")); err != nil {
			bad = &nodelog.Error{Status: http.StatusNotAcceptable, Text: "query: " + err.Error()}
			break
		}
		r = r.Clone(r.Context())
		r.URL = &url.URL{Path: "/logs/" + strings.TrimLeft(q.File, "/")}
		return r
	}
	if bad != nil {
		http.Error(w, bad.Text, bad.Status)
		return nil
	}
	s.serveServiceLogs(w, r, q)
	return nil
}

// serveServiceLogs answers with the logs of services.
func (s *Server) serveServiceLogs(w http.ResponseWriter, r *http.Request, q *nodelog.Query) {
	leave, err := s.logs.Enter()
	if err != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer leave()
	// If the client does not read, this deadline frees its slot after the longest time that an answer may take.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(nodelog.Within + 5*time.Second))
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	if r.Header.Get("Accept-Encoding") != "gzip" {
		s.logs.Copy(r.Context(), q, w)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	gz, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil { // cannot happen: the compression level is valid
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.logs.Copy(r.Context(), q, gz)
	_ = gz.Close() // an error means that the client is gone
}
