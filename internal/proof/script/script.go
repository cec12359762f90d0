package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Text is a script that is being run. Its methods are for the function that executes the commands.
type Text struct {
	t    *testing.T
	line int // number of the line with the present command, from 1
	out  strings.Builder
}

// Print adds a line to the output of the present command.
func (x *Text) Print(format string, args ...any) { fmt.Fprintf(&x.out, "    "+format+"\n", args...) }

// Fail fails the test; the message has the line of the present command.
func (x *Text) Fail(format string, args ...any) {
	x.t.Helper()
	x.t.Errorf("line %d: %s", x.line, fmt.Sprintf(format, args...))
}

// Run runs each file that matches pattern as a test of its own. It calls start once for each file. start returns the function that executes
// a command, given the words of the command's line.
func Run(t *testing.T, pattern string, update bool, start func(t *testing.T, x *Text) (command func(words []string))) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s (%v)", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			x := &Text{t: t}
			x.run(string(text), start(t, x))
			Golden(t, file, x.out.String(), update)
		})
	}
}

func (x *Text) run(text string, command func(words []string)) {
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		x.line = i + 1
		if strings.HasPrefix(line, " ") {
			continue // this line is expected output, which Golden compares
		}
		x.out.WriteString(line + "\n")
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			command(strings.Fields(line))
		}
	}
}

// Golden fails the test if the file's content is not equal to text. If update is true, it writes text into the file instead.
func Golden(t *testing.T, file, text string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s differs (-file +now; rewrite with -update and read the diff):\n%s", file, diff)
	}
}
