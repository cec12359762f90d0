package fleetctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
)

// A record is on disk a moment after each change, so that it can be read while the fleet runs, and is not lost if the process is killed. Another fleet
// cannot write to the same file.
func TestRecordIsWrittenSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &Run{Record: filepath.Join(t.TempDir(), "a.jsonl")}
		var cfg, other fleet.Config
		end, err := r.record(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.checkRecord(); err == nil {
			t.Error("another fleet may begin with the same record")
		}
		if _, err := r.record(&other); err == nil || !strings.Contains(err.Error(), "exists and is not empty") {
			t.Errorf("another fleet writes to the same record: %v", err)
		}
		for i := range 3 {
			cfg.Changed(fleet.Change{Node: "n", State: "Ready"})
			time.Sleep(1100 * time.Millisecond)
			data, err := os.ReadFile(r.Record)
			if err != nil || strings.Count(string(data), "\n") != i+2 {
				t.Errorf("after %d changes the file has %q, %v", i+1, data, err)
			}
		}
		cfg.Changed(fleet.Change{Node: "n", State: "gone"})
		if err := end(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if h, err := os.ReadFile(r.Record); err != nil || strings.Count(string(h), "\n") != 5 {
			t.Errorf("in the end the file has %q, %v", h, err)
		}
	})
}
