package agent

import (
	"context"
	"log/slog"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// boundedLog shortens long texts in the log, because an error may contain the whole output of a command or of a runtime.
type boundedLog struct{ slog.Handler }

// Handle shortens each text of the record with pod.Text and passes the record on to the wrapped handler.
func (h boundedLog) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, pod.Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(boundAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs shortens the texts of the attributes.
func (h boundedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	bounded := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		bounded[i] = boundAttr(a)
	}
	return boundedLog{h.Handler.WithAttrs(bounded)}
}

// WithGroup returns a handler that also shortens the texts inside the group.
func (h boundedLog) WithGroup(name string) slog.Handler { return boundedLog{h.Handler.WithGroup(name)} }

func boundAttr(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(pod.Text(a.Value.String()))
	case slog.KindGroup:
		group := make([]slog.Attr, 0, len(a.Value.Group()))
		for _, g := range a.Value.Group() {
			group = append(group, boundAttr(g))
		}
		a.Value = slog.GroupValue(group...)
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.AnyValue(pod.TextError(v))
		case []byte:
			a.Value = slog.StringValue(pod.Text(string(v[:min(len(v), 2*pod.TextBytes)])))
		}
	case slog.KindBool, slog.KindDuration, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64, slog.KindLogValuer:
	}
	return a
}
