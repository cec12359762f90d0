package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Reference has the results of one node agent from several runs of the tests, the newest run first. The runs stay separate, so that the
// duration of each is known. If several runs have the same test, the newest result counts.
//
// In the file, each run begins with lines that start with #. The first of these lines names the machine, the date and the duration of the
// run. A line for each test follows: status, seconds and name, separated by tabs.
type Reference []ReferenceRun

// ReferenceRun is one run of the tests.
type ReferenceRun struct {
	Title   string // without #
	Remarks []string
	Tests   Results
}

const (
	titleKubelet = "upstream's kubelet: "
	titleWherry  = "Wherry: "
	wallBegins   = "wall time "
)

// ReadReference reads a file of runs (see Reference).
func ReadReference(path string) (Reference, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var runs Reference
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSuffix(line, "\n")
		comment, isComment := strings.CutPrefix(line, "# ")
		switch {
		case strings.TrimSpace(line) == "":
			continue
		case isComment && (strings.HasPrefix(comment, titleKubelet) || strings.HasPrefix(comment, titleWherry)):
			runs = append(runs, ReferenceRun{Title: comment, Tests: Results{}})
			continue
		case len(runs) == 0:
			return nil, fmt.Errorf("read %s: line %d comes before the first \"# %s...\" or \"# %s...\"", path, number, titleKubelet, titleWherry)
		}
		run := &runs[len(runs)-1]
		if isComment {
			run.Remarks = append(run.Remarks, comment)
			continue
		}
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("read %s: line %d %q is not status, seconds and name between tabs", path, number, line)
		}
		seconds, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: line %d: seconds: %w", path, number, err)
		}
		run.Tests[fields[2]] = Result{Status: fields[0], Seconds: seconds}
	}
	return runs, nil
}

// Results returns the results of all runs in one map. Newer results replace older ones.
func (r Reference) Results() Results {
	all := Results{}
	for _, run := range slices.Backward(r) {
		maps.Copy(all, run.Tests)
	}
	return all
}

// With returns the reference with a new run at the beginning. It leaves out each older run whose tests are all in the new run, too.
func (r Reference) With(run ReferenceRun) Reference {
	runs := Reference{run}
	for _, before := range r {
		for name := range before.Tests {
			if _, again := run.Tests[name]; !again {
				runs = append(runs, before)
				break
			}
		}
	}
	return runs
}

// Wall returns the duration, in seconds, of a run that had exactly these tests; ok is false if there is no such run.
func (r Reference) Wall(ran Results) (seconds float64, ok bool) {
	for _, run := range r {
		_, wall, found := strings.Cut(run.Title, ", "+wallBegins)
		if !found || len(run.Tests) != len(ran) {
			continue
		}
		same := true
		for name := range ran {
			_, in := run.Tests[name]
			same = same && in
		}
		if same {
			seconds, err := strconv.ParseFloat(strings.TrimSuffix(wall, " s"), 64)
			return seconds, err == nil
		}
	}
	return 0, false
}

// String returns the content of the file of runs.
func (r Reference) String() string {
	var b strings.Builder
	for i, run := range r {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, line := range append([]string{run.Title}, run.Remarks...) {
			fmt.Fprintf(&b, "# %s\n", line)
		}
		for _, name := range run.Tests.Names() {
			fmt.Fprintf(&b, "%s\t%.1f\t%s\n", run.Tests[name].Status, run.Tests[name].Seconds, name)
		}
	}
	return b.String()
}
