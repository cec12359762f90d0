package fleetctl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
)

// The command compares the files that --record has written, and names the file and line that is wrong.
func TestCompare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recorded := func(name string, states ...string) string {
		r := &Run{Record: filepath.Join(dir, name)}
		var cfg fleet.Config
		end, err := r.record(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i, state := range states {
			cfg.Changed(fleet.Change{At: time.Duration(i) * time.Second, Node: "n", Pod: "ns/a\x1b[0m", Workload: "ns/a\x1b[0m", State: state, Ready: state == "Running"})
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		return r.Record
	}
	a, b := recorded("a", "Pending", "Running"), recorded("b", "Pending", "Running", "Failed (Evicted)")
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("no\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		a, b string
		c    Compare
		says string
		err  string // "": no error
	}{
		{a, a, Compare{}, "The runs had the same outcome.\nnodes Ready: A none; B none\npods Ready: A 1, after 1s (p50), 1s (p99); B 1, after 1s (p50), 1s (p99)\n", ""},
		{a, b, Compare{}, "  A 0, B 1: Failed (Evicted) (first in B: ns/a\\x1b[0m, 2.0 s)\n", "the runs differ"},
		{a, b, Compare{States: true}, "  A 1, B 0: Pending > Running, ready (first in A", "the runs differ"},
		{a, b, Compare{Output: "json"}, `"outcome": "Failed (Evicted)"`, "the runs differ"},
		{a, a, Compare{Output: "json"}, `"differences": [],`, ""},
		{a, bad, Compare{}, "", bad + ":1: this is no history"},
		{a, filepath.Join(dir, "none"), Compare{}, "", "no such file"},
		{a, a, Compare{Output: "yaml"}, "", "--output"},
	} {
		var out bytes.Buffer
		err := tt.c.Run(&out, tt.a, tt.b)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.Is(err, ErrDiffers) != (tt.err == "the runs differ") {
			t.Errorf("%+v: %v, want %q", tt.c, err, tt.err)
		}
		if !strings.Contains(out.String(), tt.says) {
			t.Errorf("%+v says\n%s\nwant %q", tt.c, out.String(), tt.says)
		}
	}
	kept := &Run{Record: filepath.Join(dir, "kept")}
	if err := os.WriteFile(kept.Record, []byte("an earlier run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, early := kept.read()
	_, late := kept.record(&fleet.Config{})
	for _, err := range []error{early, late} {
		if err == nil || !strings.Contains(err.Error(), "--record: "+kept.Record+" exists") {
			t.Errorf("the record of an earlier run: error %v", err)
		}
	}
	if text, err := os.ReadFile(kept.Record); err != nil || string(text) != "an earlier run\n" {
		t.Errorf("the record of an earlier run is now %q (%v)", text, err)
	}
	if _, err := (&Run{Record: filepath.Join(dir, "none", "file")}).record(&fleet.Config{}); err == nil || !strings.Contains(err.Error(), "--record") {
		t.Errorf("a directory that is missing: %v", err)
	}
}
