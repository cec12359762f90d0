package fleetctl

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
)

// goneQuiet passes log records on to a handler, except those whose error says only that somebody has closed a connection or has ended a
// request. The libraries of Kubernetes log these as errors, for example at the end of each kubectl exec with an input and at the end of the fleet.
type goneQuiet struct{ slog.Handler }

var _ slog.Handler = goneQuiet{}

// Handle implements slog.Handler.
func (h goneQuiet) Handle(ctx context.Context, r slog.Record) error {
	gone := false
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		gone = ok && (errors.Is(err, context.Canceled) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed))
		return !gone
	})
	if gone {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h goneQuiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return goneQuiet{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h goneQuiet) WithGroup(name string) slog.Handler { return goneQuiet{h.Handler.WithGroup(name)} }
