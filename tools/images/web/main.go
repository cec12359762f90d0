// Command web is the web server of the examples. It shows which pod serves a request, and requests can make it fail, so that one can try
// out probes, restarts and limits.
//
//	/            host name, path, client, and selected environment
//	/env         the whole environment
//	/healthz     200, or 503 after POST /healthz?ok=false
//	/exit?code=N ends the process
//	/alloc?mib=N keeps N more MiB
//	/files/PATH  a file of the container
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	address := ":8080"
	if port := os.Getenv("PORT"); port != "" {
		address = ":" + port
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	server := &http.Server{Addr: address, Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	slog.Info("serving", "address", address)
	done := make(chan error, 1)
	go func() { done <- server.ListenAndServe() }()
	select {
	case err := <-done:
		slog.Error("serve", "address", address, "err", err)
		os.Exit(1)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		slog.Error("shut down", "err", err)
	}
	slog.Info("ended")
}

// state is what requests change: the answer of /healthz, and the memory that /alloc keeps.
type state struct {
	mu        sync.Mutex
	unhealthy bool
	kept      [][]byte
}

func handler() http.Handler {
	s := &state{}
	mux := http.NewServeMux()
	mux.HandleFunc("/", hello)
	mux.HandleFunc("/env", environment)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("POST /healthz", s.setHealth)
	mux.HandleFunc("/exit", exit)
	mux.HandleFunc("/alloc", s.alloc)
	mux.Handle("/files/", http.StripPrefix("/files/", http.FileServer(http.Dir("/"))))
	return mux
}

func hello(w http.ResponseWriter, r *http.Request) {
	host, _ := os.Hostname()
	fmt.Fprintf(w, "host: %s\npath: %s\nclient: %s\n", host, r.URL.Path, r.RemoteAddr)
	for _, key := range []string{"NODE_NAME", "POD_NAME", "POD_NAMESPACE", "POD_IP", "GREETING"} {
		if value, ok := os.LookupEnv(key); ok {
			fmt.Fprintf(w, "%s: %s\n", key, value)
		}
	}
}

func environment(w http.ResponseWriter, _ *http.Request) {
	env := os.Environ()
	sort.Strings(env)
	fmt.Fprintln(w, strings.Join(env, "\n"))
}

func (s *state) healthz(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unhealthy {
		http.Error(w, "set to unhealthy by a request", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *state) setHealth(w http.ResponseWriter, r *http.Request) {
	ok, err := strconv.ParseBool(r.URL.Query().Get("ok"))
	if err != nil {
		http.Error(w, "ok has to be true or false", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unhealthy = !ok
}

func exit(w http.ResponseWriter, r *http.Request) {
	code, err := strconv.Atoi(r.URL.Query().Get("code"))
	if err != nil || code < 0 || code > 255 {
		http.Error(w, "code has to be a number from 0 to 255", http.StatusBadRequest)
		return
	}
	slog.Info("exiting by request", "code", code)
	os.Exit(code)
}

func (s *state) alloc(w http.ResponseWriter, r *http.Request) {
	mib, err := strconv.Atoi(r.URL.Query().Get("mib"))
	if err != nil || mib < 0 || mib > 1<<16 {
		http.Error(w, "mib has to be a number from 0 to 65536", http.StatusBadRequest)
		return
	}
	block := make([]byte, mib<<20)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1 // each page is written, so that the kernel really allocates it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, block)
	fmt.Fprintf(w, "keeping %d MiB more\n", mib)
}
