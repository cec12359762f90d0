package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/wherry-node/wherry/bench/internal/differ"
)

// keptBlocks returns the cases of the file name, or, if name is a directory, of all its *.json files, grouped into blocks that run one
// after another. If several files contain the same case, it runs once. restarts has the blocks during which the agents restart.
func keptBlocks(name string) (quiet, restarts []block, err error) {
	files := []string{name}
	if info, err := os.Stat(name); err != nil {
		return nil, nil, err
	} else if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(name, "*.json")); err != nil {
			return nil, nil, err
		}
	}
	type identity struct {
		kind differ.Kind
		seed uint64
		kill bool
	}
	seen := map[identity]bool{}
	all := block{}
	restarted := map[bool][]*differ.Case{} // cases in which the agents restart; the key says whether they are killed
	for _, file := range files {
		c, err := readCase(file)
		if err != nil {
			return nil, nil, err
		}
		id := identity{c.Kind, c.Seed, c.Kill}
		switch {
		case seen[id] && c.Seed != 0: // a handwritten case has seed 0, so its seed does not identify it
			continue
		case c.Kind == differ.Restart:
			restarted[c.Kill] = append(restarted[c.Kill], c)
		default:
			all.cases = append(all.cases, c)
		}
		seen[id] = true
	}
	for _, kill := range []bool{false, true} {
		for some := range slices.Chunk(restarted[kill], atRestart) {
			restarts = append(restarts, block{cases: some, restarts: true, kill: kill, perSecond: 1})
		}
	}
	if len(all.cases) > 0 {
		quiet = []block{all}
	}
	if len(quiet)+len(restarts) == 0 {
		return nil, nil, fmt.Errorf("directory %s has no cases (*.json)", name)
	}
	return quiet, restarts, nil
}

func readCase(name string) (*differ.Case, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c := &differ.Case{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("read case %s: %w", name, err)
	}
	return c, nil
}
