package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// `wherry cri` replaces the socket file of a killed process. It replaces neither a socket on which another process answers nor a file of
// another kind.
func TestCRIReplacesOnlyALeftSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	ended, cancel := context.WithCancel(t.Context())
	cancel() // with an ended context, serveCRI listens and returns at once

	file := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(file, []byte("keep me"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := serveCRI(ended, "unix://"+file, nil, log); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file in the way: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "keep me" {
		t.Errorf("the file is gone: %v", err)
	}

	left := filepath.Join(dir, "left.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if err := serveCRI(ended, "unix://"+left, nil, log); err != nil {
		t.Errorf("a socket that was left: %v", err)
	}
}
