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

// measured has the fields that merge needs from a file that -json wrote.
type measured struct {
	Began   time.Time
	Machine []string
	Plan    work.Plan
	Rounds  int
	Samples map[string][]table.Samples
	Calls   map[string]map[string][]string
}

// writeOnly clears the name of each output file (-json, -markdown, -plot) whose flag is not in given.
func (o *options) writeOnly(given map[string]bool) {
	for name, file := range map[string]*string{"json": &o.json, "markdown": &o.md, "plot": &o.plot} {
		if !given[name] {
			*file = ""
		}
	}
}

// merge reports the rounds of several runs as if they were one run. The runs must have the same machine, programs and plan.
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

// same returns an error unless the results m come from the same machine and the same plan as those of b.
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

// append adds the rounds of m to those of b. If a run was interrupted, some arms have fewer rounds than others. Empty rounds take their
// place, so that a round has the same index in all arms.
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

// filled appends empty rounds until there are at least n.
func filled(rounds []table.Samples, n int) []table.Samples {
	for len(rounds) < n {
		rounds = append(rounds, table.Samples{})
	}
	return rounds
}

// withoutVarying returns the description of a machine without the lines that differ from run to run: the load, and how the number of
// workers was found.
func withoutVarying(machine []string) []string {
	return slices.DeleteFunc(slices.Clone(machine), func(l string) bool {
		return strings.HasPrefix(l, "load before: ") || strings.HasPrefix(l, searched)
	})
}
