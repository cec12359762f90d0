package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/bench/internal/table"
	"github.com/wherry-node/wherry/bench/internal/work"
)

// measured is the content of a file of -json, as far as merge needs it.
type measured struct {
	Began   time.Time
	Machine []string
	Plan    work.Plan
	Rounds  int
	Samples map[string][]table.Samples
	Calls   map[string]map[string][]string
}

// writeOnly leaves only the output files whose flags were given.
func (o *options) writeOnly(given map[string]bool) {
	for name, file := range map[string]*string{"json": &o.json, "markdown": &o.md, "plot": &o.plot} {
		if !given[name] {
			*file = ""
		}
	}
}

// merge reports the rounds of several runs as those of one. The runs must be of the same machine, the same programs and the same plan.
func merge(o *options, files []string) error {
	b := &bench{options: o, samples: map[string][]table.Samples{}, took: fmt.Sprintf("%d runs", len(files))}
	o.rounds = 0
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var m measured
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if i == 0 {
			b.machine, b.calls, o.plan, b.began = m.Machine, m.Calls, m.Plan, m.Began
		}
		if err := b.same(&m); err != nil {
			return fmt.Errorf("%s and %s are not runs of the same work on the same machine: %w", files[0], file, err)
		}
		b.append(&m)
	}
	return b.report()
}

// same returns an error unless a run is of the same work on the same machine.
func (b *bench) same(m *measured) error {
	if one, other := withoutVarying(b.machine), withoutVarying(m.Machine); !slices.Equal(one, other) {
		return fmt.Errorf("the machines are\n%s\n%s", strings.Join(one, "; "), strings.Join(other, "; "))
	}
	if b.plan.Parallel != m.Plan.Parallel {
		return fmt.Errorf("%d and %d workers start pods in the arms bare and limit: give each run the same -parallel", b.plan.Parallel, m.Plan.Parallel)
	}
	if !reflect.DeepEqual(b.plan, m.Plan) {
		return fmt.Errorf("the plans are\n%+v\n%+v", b.plan, m.Plan)
	}
	return nil
}

// append appends the rounds of a run. An arm that lacks rounds, because the run was interrupted, gets empty ones, so that the rounds of
// all arms stay side by side.
func (b *bench) append(m *measured) {
	before := b.options.rounds
	b.options.rounds += m.Rounds
	for arm, rounds := range m.Samples {
		b.samples[arm] = append(filled(b.samples[arm], before), rounds...)
	}
	for arm, rounds := range b.samples {
		b.samples[arm] = filled(rounds, b.options.rounds)
	}
}

// filled returns rounds with empty ones at the end, so that there are at least n.
func filled(rounds []table.Samples, n int) []table.Samples {
	for len(rounds) < n {
		rounds = append(rounds, table.Samples{})
	}
	return rounds
}

// withoutVarying returns the description of a machine without what differs from run to run: its load, and the times of the search for
// the number of workers.
func withoutVarying(machine []string) []string {
	return slices.DeleteFunc(slices.Clone(machine), func(l string) bool {
		return strings.HasPrefix(l, "load before: ") || strings.HasPrefix(l, searched)
	})
}
