package fleet

import (
	"cmp"
	"slices"
)

// crew is what one shard knows of the processes that share a fleet. A shard is identified by a text that no other process has ever used.
type crew struct {
	// live are the shards that are alive.
	live []string
	// holders has the shard that holds each slice. "": the slice is free, because nobody holds it or because its lease has run out. A
	// holder need not be alive: its slice is free only when the slice's own lease has run out.
	holders []string
}

// assign returns which shard should hold each slice. If no shard is alive, nothing is assigned ("").
//
// The result is balanced: the numbers of slices of two shards differ by at most one. No balanced result moves fewer slices from a shard that
// is alive: a shard keeps what it holds, up to its share, and the larger shares go to the shards that hold most. All shards that know the
// same compute the same.
func (c crew) assign() (to []string) {
	to = make([]string, len(c.holders))
	live := slices.Compact(slices.Sorted(slices.Values(c.live)))
	if len(live) == 0 {
		return to
	}
	have := map[string]int{}
	for _, h := range c.holders {
		have[h]++
	}
	slices.SortStableFunc(live, func(a, b string) int { return cmp.Compare(have[b], have[a]) })
	share := map[string]int{}
	for i, s := range live {
		share[s] = len(to) / len(live)
		if i < len(to)%len(live) {
			share[s]++
		}
	}
	for i, h := range c.holders {
		if share[h] > 0 {
			share[h]--
			to[i] = h
		}
	}
	next := 0
	for i := range to {
		if to[i] != "" {
			continue
		}
		for share[live[next]] == 0 {
			next++
		}
		share[live[next]]--
		to[i] = live[next]
	}
	return to
}

// plan is what a shard should do so that the slices get to where they belong.
type plan struct {
	take []int // free slices that it should hold
	give []int // slices that it holds and another shard should
}

// plan returns what the shard me should do. It takes only free slices.
func (c crew) plan(me string) (p plan) {
	for i, to := range c.assign() {
		switch {
		case to == me && c.holders[i] == "":
			p.take = append(p.take, i)
		case to != me && to != "" && c.holders[i] == me:
			p.give = append(p.give, i)
		}
	}
	return p
}

// settled reports whether each slice is held by the shard that should hold it.
func (c crew) settled() bool { return slices.Equal(c.assign(), c.holders) }
