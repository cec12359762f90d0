package podctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/wherry-node/wherry/internal/cli/launch"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// findSocket returns the socket of an agent that answers. It tries asked, or else the socket in WHERRY_SOCKET, or else
// the default sockets one after another.
func findSocket(ctx context.Context, asked string) (string, error) {
	if asked == "" {
		asked = os.Getenv("WHERRY_SOCKET")
	}
	candidates := []string{asked}
	if asked == "" {
		candidates = []string{launch.OwnSocket()}
		for _, path := range append(agentSockets(config.SocketDir), config.SimulatedSocket) {
			if path != candidates[0] {
				candidates = append(candidates, path)
			}
		}
	}
	return answering(ctx, candidates, asked != "")
}

// answering returns the first of the sockets at which an agent answers. A socket that this user may not open is an error, if the user has asked
// for it, or if it is there: a directory that this user may not enter says nothing.
func answering(ctx context.Context, candidates []string, asked bool) (string, error) {
	var refused error
	for _, path := range candidates {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			_ = conn.Close()
			return path, nil
		}
		if !errors.Is(err, os.ErrPermission) {
			continue
		}
		if _, err := os.Lstat(path); asked || err == nil {
			refused = fmt.Errorf("the agent's socket %s belongs to another user: run this command as that user (sudo)", path)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", noAgent{candidates[0]}
}

// agentSockets returns the sockets in dir of agents with their own --root-dir. Fleets and CRI proxies have their control sockets there too, which
// do not serve what an agent serves.
func agentSockets(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "wherry*.sock")) // the pattern is valid, so there is no error
	return found
}

// noAgent is the error if no agent listens.
type noAgent struct{ socket string }

func (e noAgent) Error() string {
	return fmt.Sprintf("no agent listens on %s: start one with \"wherry run\" or \"wherry kubelet\", or name its socket with --socket; "+
		"a node of a cluster has one only with --push-socket=%s or controlSocket.enabled: true in its --wherry-config, a simulated node has wherry.sock in its --root-dir",
		e.socket, config.SystemSocket)
}
