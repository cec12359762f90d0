package simcri

import (
	"strings"
	"testing"
	"time"
)

// FuzzScript compiles random scripts for the simple shell. The compilation ends, and the times of the output never decrease.
func FuzzScript(f *testing.F) {
	for _, seed := range []string{
		"echo a; sleep 1", "while true; do x; done", "for i in a b; do for j in c; do echo $i$j; done; done", `echo "$(`, "${", "'", `"\`,
		"sleep", "sleep s", "exit x", "done", "while", "for", "for x in", "$((", ">", ">> x >&2", "a && || b", "sleep 99999999999d", "sleep NaN", "sleep 3e300 -1", `sleep ""`, "sleep $X", "sleep $((1+1))", "echo ${A:-x} ${B-y}", "x 2>/dev/null", "x=a; for i in 1 2 3 4 5 6 7 8 9; do x=$x$x$x$x; done; echo $x", "exec exec exec", "sh -c 'sh -c \"exit 3\"'",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		p := compileExec([]string{"sh", "-c", script}, map[string]string{"A": "b"}, nil)
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

// TestScripts runs each script and compares its standard output, exit code and duration. The output "forever" means that it does not end.
func TestScripts(t *testing.T) {
	t.Parallel()
	doubled := "x=aaaaaaaaaaaaaaaa; for i in" + strings.Repeat(" 1", 40) + "; do x=$x$x; done"
	nested := strings.Repeat("for i in 1 2 3 4 5 6 7 8 9 0; do ", 12) + "true" + strings.Repeat("; done", 12)
	for _, c := range []struct {
		script, want string
		code         int32
		took         time.Duration
	}{
		{script: `sleep ""`, code: 1},
		{script: "sleep $UNSET", code: 1},
		{script: "sleep ${DELAY:-5}", took: 5 * time.Second},
		{script: "echo ${A:-x} ${EMPTY:-x} ${EMPTY-x}- ${B-y} ${A}", want: "b x - y b\n"},
		{script: "sleep 5 2>/dev/null", took: 5 * time.Second},
		{script: "echo hi 2>/dev/null", want: "hi\n"},
		{script: "echo hi 2>>/tmp/log", want: "hi\n"},
		{script: "echo 2 > /tmp/x", want: ""},
		{script: "env", want: "A=b\nEMPTY=\n"},
		{script: doubled, want: "forever"},
		{script: nested, want: "forever"},
	} {
		p := compileExec([]string{"sh", "-c", c.script}, map[string]string{"A": "b", "EMPTY": ""}, nil)
		var out strings.Builder
		for _, s := range p.steps {
			if !s.stderr {
				out.Write(s.out)
			}
		}
		got := out.String()
		if p.forever {
			got = "forever"
		}
		if got != c.want || p.code != c.code || p.took != c.took {
			t.Errorf("%.60q: output %q, code %d, took %s; want %q, %d, %s", c.script, got, p.code, p.took, c.want, c.code, c.took)
		}
	}
}

// The place in the output after some time is where one gets step by step from the beginning, however often a loop has run.
func TestCursor(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		"true", "echo a", "echo a; sleep 1; echo b", "while true; do echo a; done", "echo a; sleep 2; while true; do sleep 1; echo b; sleep 1; echo c; sleep 3; done", "sleep 5; while true; do true; done",
	} {
		p := compileExec([]string{"sh", "-c", script}, nil, nil)
		for since := -time.Second; since < 40*time.Second; since += 250 * time.Millisecond {
			var want cursor
			for at, more := p.due(want); more && at <= since; at, more = p.due(want) {
				want = p.following(want)
			}
			if got := p.after(since); got != want {
				t.Errorf("%q after %s: %+v, want %+v", script, since, got, want)
			}
		}
	}
}
