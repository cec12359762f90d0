package differ

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Counts says how often the whole runs of `make differential` showed each decided difference and needed each excuse. The file
// bench/results/differential.json has the Counts from which docs/differences.md is generated.
type Counts struct {
	Runs []RunCounts `json:"runs"`
}

// RunCounts are the counts of one run. Each number is a number of cases, except the one in Lines.
type RunCounts struct {
	Seed    uint64         `json:"seed"`
	Cases   int            `json:"cases"`   // cases of the run, including those that were not compared
	Slow    int            `json:"slow"`    // cases that were not compared, because the machine was too slow
	Crossed int            `json:"crossed"` // cases with a Crossing
	Decided map[string]int `json:"decided"` // cases that show a decided difference, by its class
	Excused map[string]int `json:"excused"` // cases that need an excuse, by its name
	Lines   map[string]int `json:"lines"`   // excused differences, by the name of the excuse
}

// ReadCounts reads the Counts in a file. Without the file, it returns Counts without a run.
func ReadCounts(file string) (Counts, error) {
	var c Counts
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("read %s: %w", file, err)
	}
	return c, nil
}

// AddTo adds the run to the Counts in the file. It replaces an earlier run with the same seed, and creates a missing file.
func (r RunCounts) AddTo(file string) error {
	c, err := ReadCounts(file)
	if err != nil {
		return err
	}
	c.Runs = slices.DeleteFunc(c.Runs, func(old RunCounts) bool { return old.Seed == r.Seed })
	c.Runs = append(c.Runs, r)
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644)
}

// Cases returns how many cases of all runs were compared.
func (c Counts) Cases() (n int) {
	for _, r := range c.Runs {
		n += r.Cases - r.Slow
	}
	return n
}

// Decided returns how many cases of all runs show the decided difference of this class.
func (c Counts) Decided(class string) (n int) {
	for _, r := range c.Runs {
		n += r.Decided[class]
	}
	return n
}

// Excused returns in how many cases of all runs the excuse of this name was used, and for how many differences.
func (c Counts) Excused(name string) (cases, lines int) {
	for _, r := range c.Runs {
		cases, lines = cases+r.Excused[name], lines+r.Lines[name]
	}
	return cases, lines
}
