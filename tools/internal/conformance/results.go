package conformance

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Result is the result of one test.
type Result struct {
	Status  string // passed, failed or skipped
	Seconds float64
	Message string // message of the failure. If the test passed when it ran again (Retried), this is the message of the first failure
	Retried bool
}

// Results has the results of tests by name. The names do not include the tests' labels (in square brackets).
type Results map[string]Result

// junit has those elements of a JUnit report that are needed.
type junit struct {
	Suites []struct {
		Cases []struct {
			Name    string    `xml:"name,attr"`
			State   string    `xml:"status,attr"`
			Seconds float64   `xml:"time,attr"`
			Skipped *struct{} `xml:"skipped"`
			Failure *fault    `xml:"failure"`
			Error   *fault    `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// fault is a failure. Its message is an attribute or, in reports of Kubernetes' tests, the text of the element.
type fault struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (f *fault) String() string {
	return strings.TrimSpace(cmp.Or(strings.TrimSpace(f.Message), f.Text))
}

// ReadJUnit reads the results from a JUnit report. It leaves out the tests that did not run because the focus did not select them, and those
// that an interrupt of the run ended.
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
				r.Status, r.Message = "failed", c.Failure.String()
			case c.Error != nil:
				r.Status, r.Message = "failed", c.Error.String()
			case c.Skipped != nil:
				r.Status = "skipped"
			}
			name, isTest := strings.CutPrefix(c.Name, "[It] ")
			if c.State == "interrupted" {
				continue
			}
			if !isTest && r.Status != "failed" || r.Status == "skipped" && c.Seconds == 0 {
				continue // the entry is about the suite itself, or the focus left the test out
			}
			results[name] = r
		}
	}
	return results, nil
}

// Names returns the names of the tests, sorted.
func (r Results) Names() []string {
	names := make([]string, 0, len(r))
	for name := range r {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ReadPasses reads a list of tests, one per line. A line that begins with # is a comment; after a name, a tab begins a remark.
func ReadPasses(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			name, _, _ := strings.Cut(line, "\t")
			names = append(names, name)
		}
	}
	return names, nil
}

// Broken returns those tests of the list that ran and did not pass.
func Broken(listed []string, ran Results) []string {
	var broken []string
	for _, name := range listed {
		if r, ok := ran[name]; ok && r.Status != "passed" {
			broken = append(broken, name)
		}
	}
	return broken
}
