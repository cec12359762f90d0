package config

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// NewLogger returns the logger of logging.format and logging.verbosity (-v), which writes one line at a time to w. A line of
// slog level -N has verbosity N: it is shown from -v=N on. slog.LevelDebug is verbosity 4.
func (c Config) NewLogger(w io.Writer) *slog.Logger { return c.NewLoggerAt(w, c.Level()) }

// Level returns the configured verbosity as a level that can be changed later.
func (c Config) Level() *slog.LevelVar {
	level := &slog.LevelVar{}
	level.Set(slog.Level(-c.Verbosity()))
	return level
}

// SetVerbosity sets a level to the value of a -v flag.
func SetVerbosity(level *slog.LevelVar, value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return fmt.Errorf("%.40q is not a verbosity: use a whole number, 0 or more", value)
	}
	level.Set(slog.Level(-int(n)))
	return nil
}

// NewLoggerAt is NewLogger with the verbosity of the given level instead of the configured one.
func (c Config) NewLoggerAt(w io.Writer, least *slog.LevelVar) *slog.Logger {
	if c.Kubelet.Logging.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{AddSource: true, Level: least, ReplaceAttr: jsonNames}))
	}
	return slog.New(&textHandler{out: w, mu: &sync.Mutex{}, least: least, pid: os.Getpid()})
}

// jsonNames renames the fields of a line as in the JSON logs of Kubernetes: ts in milliseconds, caller, msg, v.
func jsonNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		if a.Value.Kind() != slog.KindTime { // not the time of the log line, but an attribute that is also named "time"
			return a
		}
		return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
	case slog.LevelKey:
		level, ok := a.Value.Any().(slog.Level)
		if ok && level <= 0 {
			return slog.Int("v", -int(level))
		}
	case slog.SourceKey:
		if src, ok := a.Value.Any().(*slog.Source); ok {
			return slog.String("caller", filepath.Base(src.File)+":"+strconv.Itoa(src.Line))
		}
	}
	return a
}

// textHandler writes lines in the format of Kubernetes' components:
//
//	I1121 03:24:05.123456    4711 agent.go:27] "message" key="value"
type textHandler struct {
	out    io.Writer
	mu     *sync.Mutex // protects out
	least  slog.Leveler
	pid    int
	attrs  string // the attributes of WithAttrs, printed
	prefix string // the names of WithGroup, each with a dot
}

var _ slog.Handler = (*textHandler)(nil)

func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.least.Level() }

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteByte(severity(r.Level))
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	fmt.Fprintf(&b, "%s %7d %s] %s", at.Format("0102 15:04:05.000000"), h.pid, caller(r.PC), quoted(r.Message))
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		writeAttr(&b, h.prefix, a)
		return true
	})
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.out, b.String())
	return err
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		writeAttr(&b, h.prefix, a)
	}
	with := *h
	with.attrs += b.String()
	return &with
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	with := *h
	if name != "" {
		with.prefix += name + "."
	}
	return &with
}

func severity(l slog.Level) byte {
	switch {
	case l >= slog.LevelError:
		return 'E'
	case l >= slog.LevelWarn:
		return 'W'
	default:
		return 'I'
	}
}

func caller(pc uintptr) string {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	if pc == 0 || frame.File == "" {
		return "-"
	}
	return filepath.Base(frame.File) + ":" + strconv.Itoa(frame.Line)
}

func writeAttr(b *strings.Builder, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		below := prefix
		if a.Key != "" {
			below += a.Key + "."
		}
		for _, g := range v.Group() {
			writeAttr(b, below, g)
		}
		return
	}
	if a.Key == "" {
		return
	}
	b.WriteByte(' ')
	b.WriteString(prefix)
	b.WriteString(a.Key)
	b.WriteByte('=')
	switch v.Kind() {
	case slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindBool:
		b.WriteString(v.String())
	default:
		b.WriteString(quoted(v.String()))
	}
}

// quoted quotes a text, so that a line break in it does not begin another line.
func quoted(s string) string { return strconv.Quote(s) }
