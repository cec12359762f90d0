package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program is a shell script that acts as a test program. Its first run creates the file "again" and executes the
// commands in place of {first}. A run that finds the file executes those in place of {second} first.
const program = `#!/bin/sh
echo "ran $*" >> ran
if [ -e again ]; then {second}; fi
touch again
{first}
`

func TestRunsTheFewThatFailedOnceMore(t *testing.T) {
	const two = "echo '--- FAIL: TestA (1.2s)'; echo '    --- FAIL: TestA/part (1s)'; echo '--- FAIL: TestB (0s)'; exit "
	cases := map[string]struct {
		first, second string
		runs          int
		wantErr, want string
	}{
		"all pass":                {first: "exit 0", second: "exit 3", runs: 1, want: ""},
		"pass alone":              {first: two + "1", second: "exit 0", runs: 2, want: "passed alone: TestA TestB"},
		"fail alone":              {first: two + "1", second: "exit 1", runs: 2, wantErr: "failed a second time, alone: TestA TestB", want: "run again, alone: TestA TestB"},
		"panic":                   {first: two + "2", second: "exit 0", runs: 1, wantErr: "exit status 2", want: "TestB"},
		"what is checked at last": {first: "echo left behind; exit 1", second: "exit 0", runs: 1, wantErr: "exit status 1", want: "left behind"},
		"too many":                {first: "for t in 1 2 3 4; do echo \"--- FAIL: Test$t (0s)\"; done; exit 1", second: "exit 0", runs: 1, wantErr: "exit status 1", want: "Test4"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "program")
			script := strings.NewReplacer("{first}", c.first, "{second}", c.second).Replace(program)
			if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := Run(t.Context(), path, dir, []string{"-test.timeout", "1m"}, &out)
			if c.wantErr == "" && err != nil || c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("error %v, want %q", err, c.wantErr)
			}
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("printed %q, want %q", out.String(), c.want)
			}
			ran, err := os.ReadFile(filepath.Join(dir, "ran"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(ran)), "\n")
			if len(lines) != c.runs {
				t.Fatalf("%d runs, want %d: %q", len(lines), c.runs, lines)
			}
			if alone := "-test.timeout 1m -test.run ^(TestA|TestB)$ -test.parallel 1"; c.runs == 2 && !strings.Contains(lines[1], alone) {
				t.Errorf("the second run is %q, want %q in it", lines[1], alone)
			}
		})
	}
}
