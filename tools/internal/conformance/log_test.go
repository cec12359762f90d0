package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/tools/internal/vm"
)

// ended are the results in the sample logs, which ginkgo -v has written: one of tests that ran one after another, one of tests that ran at the
// same time.
func ended() Results {
	return Results{
		"[sig-node] Pods pass [NodeConformance]": {Status: "passed", Seconds: 0.02},
		"[sig-node] Pods quick":                  {Status: "passed"},
		"[sig-node] Pods fail [Slow]":            {Status: "failed", Message: "it is broken"},
		"[sig-node] Pods skip itself":            {Status: "skipped"},
		"[sig-node] Pods panic":                  {Status: "failed", Message: "Test Panicked"},
		"[sig-node] Pods with a hook never runs": {Status: "failed", Message: "the hook fails"},
		"[sig-node] Pods hangs last":             {Status: "passed", Seconds: 1},
	}
}

// The log of a run has the results of the tests that had ended, with the names that they have in reports.
func TestResultsInALog(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ginkgo-serial.txt", "ginkgo-parallel.txt"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		cut := bytes.Index(data, []byte("[sig-node] Pods hangs last"))
		for what, text := range map[string][]byte{"whole": data, "cut": data[:cut]} {
			path := filepath.Join(t.TempDir(), name)
			before := []byte("of an earlier run\n• [1.000 seconds]\n[sig-node] Pods old [sig-node]\nx.go:1\n")
			if err := os.WriteFile(path, append(bytes.Clone(before), text...), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := ReadLog(path, int64(len(before)))
			if err != nil {
				t.Fatal(err)
			}
			want := ended()
			if what == "cut" {
				delete(want, "[sig-node] Pods hangs last")
			}
			for name, r := range got { // the two samples differ by a millisecond
				r.Seconds = math.Round(r.Seconds*50) / 50
				got[name] = r
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s, %s:\n%+v, want\n%+v", name, what, got, want)
			}
		}
	}
	if _, err := ReadLog(filepath.Join(t.TempDir(), "none"), 0); err == nil {
		t.Error("a log that is not there was read")
	}
}

// A run whose guest is gone has the results of the tests that had ended. They are in the table, and are stored with a remark.
func TestAGuestThatIsGone(t *testing.T) {
	t.Parallel()
	checkout := t.TempDir()
	var said bytes.Buffer
	o := Options{Suite: SuiteGuest, Node: "wherry", Checkout: checkout, Progress: &said, Procs: 1}
	log := o.dir("logs", "ginkgo.log")
	data, err := os.ReadFile(filepath.Join("testdata", "ginkgo-serial.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{o.dir("logs"), filepath.Join(checkout, "conformance"), o.bin("")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(log, data, 0o644), os.WriteFile(o.list("open.txt"), nil, 0o644),
		os.WriteFile(o.bin("wherry"), []byte("#!/bin/sh\necho v1\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	gone := fmt.Errorf("run the tests: %w", vm.ErrGone)
	ran, testErr := o.results(o.dir("report"), log, 0, gone)
	if len(ran) != len(ended()) || !errors.Is(testErr, vm.ErrGone) || !errors.Is(testErr, errNoReport) {
		t.Fatalf("%d results, %v", len(ran), testErr)
	}
	if err := o.report(context.Background(), ran, testErr, time.Minute); !errors.Is(err, vm.ErrGone) {
		t.Errorf("the run ended with %v", err)
	}
	if text := said.String(); !strings.Contains(text, "3 of 7 passed") || !strings.Contains(text, "[sig-node] Pods hangs last") {
		t.Errorf("the table is\n%s", text)
	}
	stored, err := os.ReadFile(o.runs("wherry.txt"))
	if err != nil || !strings.Contains(string(stored), "# The guest ended before its report: these tests had run.\n") {
		t.Errorf("stored is\n%s%v", stored, err)
	}
	if ran, err := o.results(o.dir("report"), filepath.Join(checkout, "none"), 0, gone); ran != nil || !errors.Is(err, vm.ErrGone) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a log: %v, %v", ran, err)
	}
	if ran, err := o.results(o.dir("report"), log, 0, nil); ran != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a run that ended well without a report: %v, %v", ran, err)
	}
}
