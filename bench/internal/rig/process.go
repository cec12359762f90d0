package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Memory is the resident memory of a process in bytes, from /proc/PID/status: in total, anonymous pages, and file pages.
type Memory struct{ RSS, Anon, File int64 }

// MemoryOf reads the resident memory of a process.
func MemoryOf(pid int) (Memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			m.RSS = kib << 10
		case "RssAnon:":
			m.Anon = kib << 10
		case "RssFile:":
			m.File = kib << 10
		}
	}
	return m, nil
}

// CPUOf returns the processor time that a process has used. The time of its children is not included.
func CPUOf(pid int) (time.Duration, error) {
	// schedstat counts nanoseconds per thread. The sum is complete as long as no thread ends, which is rare in a Go process.
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, t := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, t.Name()))
		if err != nil {
			continue // the thread ended between the two reads
		}
		ns, _ := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		sum += time.Duration(ns)
	}
	return sum, nil
}

// Metric reads a metric that has no labels from the agent, through the API server.
func (a *Agent) Metric(ctx context.Context, name string) (float64, error) {
	b, err := a.rig.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(a.Node).SubResource("proxy").Suffix("metrics").
		SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read metrics of %s: %w", a.Node, err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			return strconv.ParseFloat(f[1], 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", a.Node, name)
}

// Profile fetches a pprof profile of the agent through the API server, and writes it into a file. The parameter what is the URL path below
// debug/pprof, such as "heap" or "profile?seconds=10".
func (a *Agent) Profile(ctx context.Context, what, file string) error {
	name, query, _ := strings.Cut(what, "?")
	req := a.rig.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(a.Node).SubResource("proxy").Suffix("debug/pprof/" + name)
	if key, value, ok := strings.Cut(query, "="); ok {
		req = req.Param(key, value)
	}
	b, err := req.DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("fetch profile %s of %s: %w", what, a.Node, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
