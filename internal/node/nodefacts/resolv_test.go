package nodefacts

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A problem of the node's resolver configuration is reported as an event on the node: at the first read, and when the problem changes.
func TestResolverRecordsANodeEvent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	var events []string
	r := &Resolver{Path: path, ClusterDomain: "cluster.local", Log: slog.New(slog.DiscardHandler), Event: func(kind, reason, message string) {
		events = append(events, kind+" "+reason+" "+message)
	}}
	domains := func(n int) string { return "nameserver 10.0.0.1\nsearch" + strings.Repeat(" example.com", n) + "\n" }
	for _, step := range []struct {
		name, text, want string // want: the end of the event; "": no event
		searches         int
	}{
		{"no file", "", "no such file or directory", 0},
		{"still none", "", "", 0},
		{"as many domains as fit beside the cluster's", domains(29), "", 29},
		{"one more", domains(30), "search line consisting of more than 29 domains!", 30},
		{"the same", domains(30), "", 30},
		{"a long one", "search " + strings.Repeat("a", 254) + "\n", "a search path which length is more than allowed 253 chars!", 1},
		{"long together", "search" + strings.Repeat(" "+strings.Repeat("a", 250), 9) + "\n", "search line which length is more than allowed 2048 chars!", 9},
		{"good", domains(1), "", 1},
		{"bad again", domains(30), "more than 29 domains!", 30},
		{"a line that cannot be read", "nameserver\nsearch a.example b.example\n", "line 1: nameserver without an address", 2},
	} {
		if step.text != "" {
			if err := os.WriteFile(path, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		events = nil
		c, err := r.Read()
		if (err == nil) != (step.text != "") {
			t.Errorf("%s: %v", step.name, err)
		}
		recorded := strings.Join(events, "\n")
		if n := len(c.GetSearches()); n != step.searches || (recorded == "") != (step.want == "") ||
			recorded != "" && (!strings.HasPrefix(recorded, "Warning CheckLimitsForResolvConf ") || !strings.HasSuffix(recorded, step.want)) {
			t.Errorf("%s: %d search paths, events %q", step.name, n, recorded)
		}
	}
	if c, err := (&Resolver{}).Read(); c != nil || err != nil {
		t.Errorf("without a file: %v, %v", c, err)
	}
}
