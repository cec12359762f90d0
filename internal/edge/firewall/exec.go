package firewall

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	// programTime is how long one program may take. iptables itself waits 5 s for its lock.
	programTime = 15 * time.Second
	// programOutput is how many bytes of a program's output are kept.
	programOutput = 64 << 10
)

// Exec runs programs of this machine. It is a Runner.
func Exec(ctx context.Context, stdin string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	var stdout, stderr head
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(stderr.kept.String()))
	}
	return stdout.kept.String(), nil
}

// head keeps the beginning of its input.
type head struct{ kept bytes.Buffer }

// Write accepts all bytes and keeps those that fit.
func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), programOutput-h.kept.Len())])
	return len(p), nil
}
