package heartbeat

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// sayer logs a message only if it is new or was not logged for a minute, because retries every 200 ms must not fill the disk with log
// lines. A sayer is ready to use if its field log is set.
type sayer struct {
	log  *slog.Logger
	said map[string]time.Time
}

func (s *sayer) warn(message string, args ...any) {
	now := time.Now()
	if at, ok := s.said[message]; ok && now.Sub(at) < repeatLogged {
		return
	}
	if s.said == nil || len(s.said) > 32 {
		s.said = map[string]time.Time{}
	}
	s.said[message] = now
	s.log.Warn(message, args...)
}

// well is called when an operation has succeeded. It forgets the messages that were logged more than a minute ago, so that the map stays
// small.
func (s *sayer) well() {
	for message, at := range s.said {
		if time.Since(at) >= repeatLogged {
			delete(s.said, message)
		}
	}
}

// explain returns the meaning of a failure and its remedy, for the person who runs the node.
func (h *Heartbeat) explain(err error) string {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("%v: the API server does not accept this agent's credentials; check that the client certificate is of this cluster and has not expired, and that the clocks agree", err)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%v: this agent's credentials are not those of node %q: a node may only act as itself (user system:node:%s, group system:nodes). "+
			"The name may belong to another machine: use another one (--hostname-override), or get a certificate for this one. Trying again", err, h.cfg.NodeName, h.cfg.NodeName)
	case apierrors.IsNotFound(err) && !h.cfg.Register:
		return fmt.Sprintf("node %q does not exist and this agent does not register itself (registerNode is false): create the Node object, or start with --register-node=true. Waiting for it", h.cfg.NodeName)
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("node %q was deleted while this agent runs: it registers again when it is restarted", h.cfg.NodeName)
	case isCertificate(err):
		return fmt.Sprintf("%v: the API server's certificate is not accepted: check the certificate authority in the kubeconfig, the server's name in its URL, and this machine's clock. Trying again", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%v: the API server did not answer within %s. Trying again", err, h.cfg.StatusFrequency)
	}
	return fmt.Sprintf("%v. Trying again", err)
}

func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
