package simcri

import (
	"testing"
	"time"
)

// FuzzScript runs random scripts in the simple shell. Each one ends, and its output is in order.
func FuzzScript(f *testing.F) {
	for _, seed := range []string{
		"echo a; sleep 1", "while true; do x; done", "for i in a b; do for j in c; do echo $i$j; done; done", `echo "$(`, "${", "'", `"\`,
		"sleep", "sleep s", "exit x", "done", "while", "for", "for x in", "$((", ">", ">> x >&2", "a && || b", "sleep 99999999999d", "sleep NaN", "sleep 3e300 -1", "exec exec exec", "sh -c 'sh -c \"exit 3\"'",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		p := compileExec([]string{"sh", "-c", script}, map[string]string{"A": "b"})
		var last time.Duration
		for _, s := range p.steps {
			if s.at < last || s.at > p.took {
				t.Fatalf("%q: output at %s after %s, took %s", script, s.at, last, p.took)
			}
			last = s.at
		}
		if p.period < 0 || p.took < 0 || p.loopFrom > len(p.steps) {
			t.Fatalf("%q: %+v", script, p)
		}
	})
}
