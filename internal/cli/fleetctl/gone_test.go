package fleetctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
)

// The log of a fleet has no errors that say only that a client or the fleet itself has ended, and has all others.
func TestGoneQuiet(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(goneQuiet{slog.NewTextHandler(&out, nil)}).With("node", "n").WithGroup("g")
	log.Error("Copying stdin failed", "err", io.ErrClosedPipe)
	log.Error("Unexpected error when reading response body", "err", fmt.Errorf("read: %w", context.Canceled))
	if out.Len() > 0 {
		t.Errorf("logged: %s", &out)
	}
	log.Error("the disk is full", "err", errors.New("no space left"))
	log.Info("without an error", "count", 3)
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "no space left") || !strings.Contains(text, "node=n") {
		t.Errorf("logged: %s", text)
	}
}
