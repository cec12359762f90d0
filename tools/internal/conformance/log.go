package conformance

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// mostLog is how much of a log of ginkgo is read, in bytes.
const mostLog = 256 << 20

// logDelimiter is the line that ginkgo -v writes before and after what it writes about a test.
const logDelimiter = "------------------------------"

var (
	// logEnd matches the line that says how a test ended, and after how many seconds.
	logEnd = regexp.MustCompile(`^[•S](?: \[([A-Z ]+)\])?(?: .*)? \[([0-9]+\.[0-9]+) seconds\]$`)
	// logPlace matches the line with the source of a test, which follows the line with its name.
	logPlace = regexp.MustCompile(`^(?:  \[[A-Za-z() ]+\] )?\S+\.go:[0-9]+$`)
	// logNode matches the mark in the name of a test that failed, before the part of it that failed.
	logNode = regexp.MustCompile(`(?:TOP-LEVEL )?\[(?:It|(?:Just)?(?:Before|After)Each|(?:Before|After)All|DeferCleanup \((?:Each|All)\))\] `)
	// logLabels matches the labels after the name of a test. Each of Kubernetes' tests has some.
	logLabels = regexp.MustCompile(` \[[^\[\]]*\]$`)
	// logFault matches the line with the message of a failure, and, before that, one that says only where it was.
	logFault = regexp.MustCompile(`^  \[[A-Z]+\] (.*)`)
)

// ReadLog reads the results of the tests that had ended from a log of ginkgo -v, from the offset from on. The report of a run has more, but ginkgo
// writes it only at the end. A failed test has the first line of its message.
func ReadLog(path string, from int64) (Results, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the log of the tests: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(f, from, mostLog))
	if err != nil {
		return nil, fmt.Errorf("read the log of the tests: %w", err)
	}
	lines := strings.Split(string(data), "\n")
	at := func(i int) string {
		if i < 0 || i >= len(lines) {
			return ""
		}
		return lines[i]
	}
	// named returns the name of the test, if line i is one: its source follows.
	named := func(i int) (string, bool) {
		return nameInLog(at(i)), at(i) != "" && logPlace.MatchString(at(i+1))
	}
	results := Results{}
	now := "" // the test that runs, if only one runs at a time: then its name comes first, before its output
	for i, line := range lines {
		if line == logDelimiter {
			if name, ok := named(i + 1); ok {
				now = name
			}
			continue
		}
		end := logEnd.FindStringSubmatch(line)
		if end == nil {
			continue
		}
		name := now
		if after, ok := named(i + 1); ok { // of tests that run at the same time, and of those that failed, the name comes after the result
			name = after
		}
		now = ""
		r := Result{Status: "passed"}
		r.Seconds, _ = strconv.ParseFloat(end[2], 64) // the pattern leaves nothing that cannot be parsed, except what is too large
		switch end[1] {
		case "":
		case "SKIPPED":
			r.Status = "skipped"
		case "INTERRUPTED":
			continue
		default:
			r.Status, r.Message = "failed", faultInLog(lines[i+1:])
		}
		if name != "" {
			results[name] = r
		}
	}
	return results, nil
}

// nameInLog returns the name of a test as it is in reports.
func nameInLog(line string) string {
	line = logLabels.ReplaceAllString(line, "")
	if mark := logNode.FindStringIndex(line); mark != nil {
		line = line[:mark[0]] + line[mark[1]:]
	}
	return line
}

// faultInLog returns the first line of the message of a failure. lines begin after the line with the result.
func faultInLog(lines []string) string {
	for _, line := range lines {
		if line == logDelimiter {
			break
		}
		if m := logFault.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[1], "in [") && !logPlace.MatchString(line) {
			return m[1]
		}
	}
	return "the log has no message"
}

// errNoReport means that a run ended without a report, and that the results are those in its log.
var errNoReport = errors.New("the run has no report: these results are from its log")

// results returns the results of a run of ginkgo that ended with the error ran. Its report is in the directory report, and its log begins at the
// offset from of a file. If there is no report because the guest is gone, for example, the results are those of the tests that had ended.
func (o Options) results(report, log string, from int64, ran error) (Results, error) {
	results, err := ReadJUnit(filepath.Join(report, "junit_01.xml"))
	if err == nil {
		return results, ran
	}
	if o.Suite == SuiteGuest && ran != nil {
		if results, _ := ReadLog(log, from); len(results) > 0 {
			return results, errors.Join(ran, errNoReport)
		}
	}
	return nil, errors.Join(ran, err)
}
