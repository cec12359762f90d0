package conformance

import (
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Result is how one test ended.
type Result struct {
	Status  string // passed, failed or skipped
	Seconds float64
	Message string // of the failure
}

// Results are by the test's name, without its labels.
type Results map[string]Result

// junit is the part of a JUnit report that is looked at.
type junit struct {
	Suites []struct {
		Cases []struct {
			Name    string    `xml:"name,attr"`
			Seconds float64   `xml:"time,attr"`
			Skipped *struct{} `xml:"skipped"`
			Failure *fault    `xml:"failure"`
			Error   *fault    `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type fault struct {
	Message string `xml:"message,attr"`
}

// ReadJUnit reads the tests that ran; those that the focus left out are not among them.
func ReadJUnit(path string) (Results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read JUnit report: %w", err)
	}
	var report junit
	if err := xml.Unmarshal(data, &report); err != nil {
		return nil, fmt.Errorf("read JUnit report %s: %w", path, err)
	}
	results := Results{}
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			r := Result{Status: "passed", Seconds: c.Seconds}
			switch {
			case c.Failure != nil:
				r.Status, r.Message = "failed", c.Failure.Message
			case c.Error != nil:
				r.Status, r.Message = "failed", c.Error.Message
			case c.Skipped != nil:
				r.Status = "skipped"
			}
			name, isTest := strings.CutPrefix(c.Name, "[It] ")
			if !isTest && r.Status != "failed" || r.Status == "skipped" && c.Seconds == 0 {
				continue // of the suite itself, or not asked for
			}
			results[name] = r
		}
	}
	return results, nil
}

// Names are the tests in order.
func (r Results) Names() []string {
	names := make([]string, 0, len(r))
	for name := range r {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ReadPasses reads a list of tests, one per line, # begins a comment line.
func ReadPasses(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			names = append(names, line)
		}
	}
	return names, nil
}

// Reference is what upstream's kubelet did, as a committed file: status, seconds, name, with what it was run on above it.
func ReadReference(path string) (Results, error) {
	lines, err := ReadPasses(path)
	if err != nil {
		return nil, err
	}
	results := Results{}
	for i, line := range lines {
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("read %s: entry %d %q is not status, seconds and name between tabs", path, i+1, line)
		}
		seconds, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: entry %d: seconds: %w", path, i+1, err)
		}
		results[fields[2]] = Result{Status: fields[0], Seconds: seconds}
	}
	return results, nil
}

// Broken are the listed tests that ran and did not pass.
func Broken(listed []string, ran Results) []string {
	var broken []string
	for _, name := range listed {
		if r, ok := ran[name]; ok && r.Status != "passed" {
			broken = append(broken, name)
		}
	}
	return broken
}

// Table compares a run with the reference, failures first.
func Table(ran, reference Results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %-8s %8s %8s  %s\n", "Wherry", "upstream", "s", "s", "test")
	names := ran.Names()
	slices.SortStableFunc(names, func(a, b string) int {
		return strings.Compare(ran[a].Status, ran[b].Status) // failed, passed, skipped
	})
	var sum, both, theirs float64
	passed := 0
	for _, name := range names {
		r := ran[name]
		up, seconds := "-", "-"
		if u, ok := reference[name]; ok {
			up, seconds = u.Status, fmt.Sprintf("%.1f", u.Seconds)
			if u.Status == "passed" && r.Status == "passed" {
				both, theirs = both+r.Seconds, theirs+u.Seconds
			}
		}
		if r.Status == "passed" {
			passed++
		}
		sum += r.Seconds
		fmt.Fprintf(&b, "%-8s %-8s %8.1f %8s  %s\n", r.Status, up, r.Seconds, seconds, name)
	}
	fmt.Fprintf(&b, "%d of %d passed, %.0f s in all\n", passed, len(ran), sum)
	if theirs > 0 {
		fmt.Fprintf(&b, "those that both pass: Wherry %.0f s, upstream's kubelet %.0f s, ratio %.2f\n", both, theirs, both/theirs)
	}
	return b.String()
}
