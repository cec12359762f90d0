package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/wherry-node/wherry/bench/internal/differ"
)

// record is one run of a case on both agents.
type record struct {
	Case             *differ.Case
	Upstream, Wherry *differ.Trace
}

// records is a file of records: gzip of JSON, one after the other. Its methods may be called concurrently.
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

// Close ends the file.
func (r *records) Close() error { return errors.Join(r.zip.Close(), r.file.Close()) }

// replay compares what was recorded. A case that was run again has more than one record: a difference counts when each shows it.
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
	t := newTally(o)
	shown := map[*differ.Case][]differ.Difference{}
	byName := map[string]*differ.Case{}
	var cases []*differ.Case
	for from := json.NewDecoder(z); ; {
		var r record
		if err := from.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read %s: %w", o.replay, err)
		}
		found := differ.Compare(r.Case, r.Upstream, r.Wherry)
		name := fmt.Sprint(r.Case.Kind, r.Case.Seed)
		c := byName[name]
		if c == nil {
			c = r.Case
			byName[name], cases, shown[c] = c, append(cases, c), differ.Shown(found)
			t.count(found)
		} else {
			before := len(shown[c])
			shown[c] = slices.DeleteFunc(shown[c], func(d differ.Difference) bool { return !has(found, d.Class) })
			t.unsteady += before - len(shown[c])
		}
		t.pairs[c] = &differ.Pair{Upstream: r.Upstream, Wherry: r.Wherry}
	}
	t.ran = len(cases)
	for _, c := range cases {
		t.note(block{}, c, shown[c])
	}
	return t.report()
}
