package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/wherry-node/wherry/bench/internal/differ"
)

// record is one run of a case on both agents. A case that was not compared, because the machine was too slow, has no traces.
type record struct {
	Case             *differ.Case
	Upstream, Wherry *differ.Trace
}

// records writes values of type record as JSON, one after another, into a gzip file. Its methods may be called concurrently.
type records struct {
	mu   sync.Mutex
	file *os.File
	zip  *gzip.Writer
	to   *json.Encoder
}

func create(path string) (*records, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	z := gzip.NewWriter(f)
	return &records{file: f, zip: z, to: json.NewEncoder(z)}, nil
}

func (r *records) add(c *differ.Case, p *differ.Pair) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.to.Encode(record{c, p.Upstream, p.Wherry}); err != nil {
		return fmt.Errorf("record seed %d: %w", c.Seed, err)
	}
	return nil
}

// Close writes the rest of the compressed data and closes the file.
func (r *records) Close() error { return errors.Join(r.zip.Close(), r.file.Close()) }

// replay compares the traces in a file that -record wrote, without running pods. A case that showed a difference was run again and has
// several records; a difference is reported only if all of them show it. With -again 0 each case has one record.
func replay(o options) error {
	f, err := os.Open(o.replay)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return fmt.Errorf("read %s: %w", o.replay, err)
	}
	plant, planted, early := differ.Plants[o.plant], map[*differ.Case]bool{}, map[*differ.Case]bool{}
	if o.plant != "" && plant == nil {
		return fmt.Errorf("no fault %q: there are %s", o.plant, strings.Join(slices.Sorted(maps.Keys(differ.Plants)), ", "))
	}
	t := newTally(o)
	verdicts := map[*differ.Case]*differ.Verdict{}
	byName := map[string]*differ.Case{}
	var cases []*differ.Case
	for from := json.NewDecoder(z); ; {
		var r record
		if err := from.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			fmt.Printf("%s ends in the middle of a case: its run has not ended, or was cut off; the cases before are compared\n", o.replay)
			break
		} else if err != nil {
			return fmt.Errorf("read %s: %w", o.replay, err)
		}
		if r.Upstream == nil || r.Wherry == nil {
			t.slow[r.Case] = true
			continue
		}
		struck, before := false, false
		if plant != nil {
			crossing := differ.CompareAll(r.Case, r.Upstream, r.Wherry).Crossing
			before = crossing != nil && differ.PlantedBefore(plant, r.Case, r.Wherry, crossing.At)
			struck = plant(r.Case, r.Wherry)
		}
		v := differ.CompareAll(r.Case, r.Upstream, r.Wherry)
		name := fmt.Sprint(r.Case.Kind, r.Case.Seed, r.Case.Kill)
		c := byName[name]
		if c == nil || o.again == 0 {
			c = r.Case
			byName[name], cases, verdicts[c] = c, append(cases, c), &v
		} else {
			t.both(verdicts[c], v)
		}
		planted[c] = planted[c] || struck
		early[c] = early[c] || before
		t.keep(c, v, &differ.Pair{Upstream: r.Upstream, Wherry: r.Wherry})
	}
	t.ran = len(cases) + len(t.slow)
	for _, c := range cases {
		t.settle(block{}, c, *verdicts[c])
	}
	err = t.report()
	if plant != nil {
		shown := func(in map[*differ.Case]bool) (n, found int) {
			for _, c := range cases {
				if in[c] {
					n++
				}
				if in[c] && t.shows(c) {
					found++
				}
			}
			return n, found
		}
		n, found := shown(planted)
		fmt.Printf("the fault %q was planted in %d cases, %d of them show an undecided difference\n", o.plant, n, found)
		n, found = shown(early)
		fmt.Printf("in %d cases it was planted before a crossing, %d of them show an undecided difference\n", n, found)
	}
	return err
}
