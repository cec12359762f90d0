package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/bench/internal/table"
	"github.com/wherry-node/wherry/bench/internal/work"
)

// writeRun writes m as JSON into a file, as the flag -json does, and returns the name of the file.
func writeRun(t *testing.T, m map[string]any) string {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// -merge puts the rounds of two runs into one table. It refuses runs with different machines or plans.
func TestMerge(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC)
	file := func(load, cpu string, plan work.Plan, totals ...float64) string {
		rounds := make([]table.Samples, len(totals))
		for i, v := range totals {
			rounds[i] = table.Samples{"pods at once, create to Ready, total": {v}}
		}
		return writeRun(t, map[string]any{
			"began":   began,
			"machine": []string{"machine: " + cpu, "load before: " + load, "wherry: commit 1", "runtime: r", "runc: r", searched + load},
			"plan":    plan, "rounds": 1,
			"samples": map[string][]table.Samples{wherry: rounds},
			"calls":   map[string]map[string][]string{wherry: {"CRI calls per minute at rest": {"12.0 Status"}}},
		})
	}
	a, b := file("0.1", "x", work.Plan{Pods: 100}, 10), file("0.2", "x", work.Plan{Pods: 100}, 20)
	dir := t.TempDir()
	o := options{md: filepath.Join(dir, "out.md"), json: filepath.Join(dir, "out.json")}
	if err := merge(&o, []string{a, b}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.md)
	if err != nil || !strings.Contains(string(text), "2 rounds") || !strings.Contains(string(text), "15.0 (10.0-20.0)") {
		t.Errorf("%v: %s", err, text)
	}
	var merged measured
	data, err := os.ReadFile(o.json)
	if err := errors.Join(err, json.Unmarshal(data, &merged)); err != nil || !merged.Began.Equal(began) {
		t.Errorf("began %v, %v", merged.Began, err)
	}
	for other, want := range map[string]string{
		file("0.1", "y", work.Plan{Pods: 100}, 20):              "the machines are",
		file("0.1", "x", work.Plan{Pods: 50}, 20):               "the plans are",
		file("0.1", "x", work.Plan{Pods: 100, Parallel: 8}, 20): "give each run the same -parallel",
	} {
		if err := merge(&options{}, []string{a, other}); err == nil || !strings.Contains(err.Error(), "not runs of the same work") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// After an interrupted run, in which some arms lack rounds, -merge adds empty rounds, so that the next run's rounds have the same index
// in all arms.
func TestMergeInterrupted(t *testing.T) {
	t.Parallel()
	const name = "one pod, create to Ready"
	round := func(v float64) table.Samples { return table.Samples{name: {v}} }
	file := func(samples map[string][]table.Samples) string {
		return writeRun(t, map[string]any{"machine": []string{"m", "", "", "", ""}, "plan": work.Plan{}, "rounds": 2, "samples": samples})
	}
	o := options{json: filepath.Join(t.TempDir(), "out.json")}
	if err := merge(&o, []string{
		file(map[string][]table.Samples{upstream: {round(2), round(20)}, wherry: {round(1)}}),
		file(map[string][]table.Samples{upstream: {round(2), round(20)}, wherry: {round(1), round(10)}, limit: {round(1), round(10)}}),
	}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(o.json)
	var merged struct {
		measured
		Table []table.Line
	}
	if err := errors.Join(err, json.Unmarshal(data, &merged)); err != nil {
		t.Fatal(err)
	}
	for _, arm := range []string{upstream, wherry, limit} {
		if n := len(merged.Samples[arm]); n != 4 {
			t.Errorf("%s has %d rounds, want 4", arm, n)
		}
	}
	if len(merged.Samples[wherry][1]) != 0 || merged.Samples[wherry][2][name][0] != 1 || len(merged.Samples[limit][0]) != 0 {
		t.Errorf("rounds: %v", merged.Samples)
	}
	if r := merged.Table[0].Ratio; r == nil || r.N != 3 || r.Max != 0.5 {
		t.Errorf("ratio %+v, want three rounds of 0.5", r)
	}
}

// With -merge only the output files whose flags are given are written, so that the results of an earlier run stay.
func TestWriteOnly(t *testing.T) {
	t.Parallel()
	o := options{json: "a", md: "b", plot: "c", readme: "d"}
	if o.writeOnly(map[string]bool{"markdown": true, "merge": true}); o.json != "" || o.md != "b" || o.plot != "" || o.readme != "d" {
		t.Errorf("files %q, %q, %q, %q", o.json, o.md, o.plot, o.readme)
	}
}

// -agree returns an error if two tables have no cell in common, because then it has compared nothing.
func TestAgreeNeedsCells(t *testing.T) {
	t.Parallel()
	file := func(work string) string {
		return writeRun(t, map[string]any{"table": []table.Line{{Work: work, Arms: map[string]table.Stat{wherry: {Value: 1, Min: 1, Max: 1, N: 1}}}}})
	}
	a := file("a")
	if err := agree([]string{a, a}); err != nil {
		t.Errorf("a run with itself: %v", err)
	}
	if err := agree([]string{a, file("b")}); err == nil || !strings.Contains(err.Error(), "no cell in common") {
		t.Errorf("two runs of different work: %v", err)
	}
}

// An unknown name in -arms, -work or -probes is refused.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    options
		want string // "": no error
	}{
		{options{arms: "bare,wherry", work: "one", probes: "exec"}, ""},
		{options{arms: "wherrry"}, `there is no arm "wherrry"`},
		{options{work: "prob"}, `there is no work "prob"`},
		{options{probes: "htpp"}, `there is no kind of probe "htpp"`},
	} {
		err := c.o.names()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

// rows replaces the words ALL, FIFTH and REST in titles and sample names by numbers of pods.
func TestRows(t *testing.T) {
	t.Parallel()
	samples := map[string]bool{}
	for _, r := range rows(50) {
		samples[r.Sample] = true
		for _, left := range []string{"ALL", "FIFTH", "REST"} {
			if strings.Contains(r.Title+r.Sample, left) {
				t.Errorf("%s: %s", r.Title, r.Sample)
			}
		}
	}
	for _, s := range []string{"one pod beside 50 probed pods, create to Ready", "one pod beside 10 probed pods, create to Ready", "one pod beside 40 pods that are deleted by force, create to Ready"} {
		if !samples[s] {
			t.Errorf("no row for %s", s)
		}
	}
}
