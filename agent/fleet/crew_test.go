package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// crewOf reads a crew from a text: one letter for the holder of each slice, "." for a free one.
func crewOf(live, holders string) crew {
	c := crew{live: strings.Split(live, "")}
	for _, h := range strings.Split(holders, "") {
		c.holders = append(c.holders, strings.Trim(h, "."))
	}
	return c
}

func TestAssign(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, live, holders, want string }{
		{"one shard takes all", "a", "....", "aaaa"},
		{"two shards share", "ab", "....", "aabb"},
		{"nothing moves without need", "ab", "abab", "abab"},
		{"the larger share stays where it is", "ab", "babab", "babab"},
		{"the slices of a dead shard are divided", "ac", "abcabc", "aacacc"},
		{"a shard joins: it gets what the others have too much", "abc", "aaabbb", "aacbbc"},
		{"a holder that is not alive has no share", "a", "aax.", "aaaa"},
		{"more shards than slices", "abcd", "..", "ab"},
		{"more shards than slices: the holders keep theirs", "abcd", "dc", "dc"},
	} {
		if got := strings.Join(crewOf(c.live, c.holders).assign(), ""); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := (crew{holders: []string{"a", ""}}).assign(); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("without a shard: %q", got)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, live, holders, want string }{
		{"takes its share of what is free", "ab", "....", "{[0 1] []}"},
		{"leaves what a dead shard still holds", "ab", "axbx", "{[] []}"},
		{"takes what a dead shard held", "ab", "a.b.", "{[1] []}"},
		{"gives what is too much", "ab", "aaaa", "{[] [2 3]}"},
		{"waits for what another gives", "ab", "bbbb", "{[] []}"},
	} {
		if got := fmt.Sprint(crewOf(c.live, c.holders).plan("a")); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// checkAssign fails the test if an assignment breaks one of the promises of assign.
func checkAssign(t *testing.T, c crew) {
	t.Helper()
	to := c.assign()
	if len(c.live) == 0 {
		return
	}
	had, has := map[string]int{}, map[string]int{}
	moved := 0
	for i, s := range to {
		if !slices.Contains(c.live, s) {
			t.Fatalf("%+v: slice %d goes to %q, which is not alive", c, i, s)
		}
		has[s]++
		if h := c.holders[i]; slices.Contains(c.live, h) {
			had[h]++
			if h != s {
				moved++
			}
		}
	}
	least, most := len(to), 0
	for _, s := range c.live {
		least, most = min(least, has[s]), max(most, has[s])
	}
	if most-least > 1 {
		t.Fatalf("%+v: shares from %d to %d: %q", c, least, most, to)
	}
	if want := fewestMoves(had, c.live, len(to)); moved != want {
		t.Fatalf("%+v: %d slices move, want %d: %q", c, moved, want, to)
	}
}

// fewestMoves returns how many slices must move at least, by another way than assign: each of the larger shares saves a move of a shard that
// has more than the smaller share.
func fewestMoves(had map[string]int, live []string, total int) int {
	small, large := total/len(live), total%len(live)
	moves := 0
	for _, s := range live {
		if had[s] > small {
			moves += had[s] - small
			if large > 0 {
				large--
				moves--
			}
		}
	}
	return moves
}

func FuzzAssign(f *testing.F) {
	f.Add([]byte{3, 0, 1, 2, 3, 4, 0, 0, 1})
	f.Add([]byte{1, 9, 9, 9})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 300 {
			return
		}
		var c crew
		for i := range int(data[0] % 20) {
			c.live = append(c.live, fmt.Sprint("s", i))
		}
		for _, b := range data[1:] {
			h := ""
			if b > 0 {
				h = fmt.Sprint("s", b%25) // some holders are not alive
			}
			c.holders = append(c.holders, h)
		}
		checkAssign(t, c)
	})
}

// Shards come and go at random, and each does what its plan says. After each change all slices are soon where they should be, and no slice is
// ever taken from a shard that holds it.
func TestPlansConverge(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := crew{holders: make([]string, 1+r.IntN(64))}
		names := 0
		for range 10 {
			if len(c.live) > 0 && r.IntN(2) == 0 { // one dies; later its leases have run out
				i := r.IntN(len(c.live))
				for s, h := range c.holders {
					if h == c.live[i] {
						c.holders[s] = ""
					}
				}
				c.live = slices.Delete(c.live, i, i+1)
			} else {
				names++
				c.live = append(c.live, fmt.Sprint("s", names))
			}
			checkAssign(t, c)
			for range 3 { // give, take, rest
				seen := crew{live: c.live, holders: slices.Clone(c.holders)}
				for _, me := range c.live {
					p := seen.plan(me)
					for _, i := range p.take {
						if c.holders[i] != "" {
							t.Fatalf("%s takes slice %d from %s", me, i, c.holders[i])
						}
						c.holders[i] = me
					}
					for _, i := range p.give {
						c.holders[i] = ""
					}
				}
			}
			if len(c.live) > 0 && !c.settled() {
				t.Fatalf("not settled: %+v", c)
			}
		}
	}
}

// A node's slice depends on its name alone, and the nodes are divided about evenly.
func TestSlices(t *testing.T) {
	t.Parallel()
	groups := []Group{{Count: 2000}, {Name: "big", Count: 1000}}
	for i := range groups {
		groups[i].setDefaults()
	}
	n := slicesOf(3000)
	all, err := newRoster("f", groups, []int{2000, 1000}, n)
	if err != nil {
		t.Fatal(err)
	}
	fewer, err := newRoster("f", groups, []int{10, 1000}, n)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i, s := range all.slices {
		total += len(s)
		if len(s) < 25 || len(s) > 100 {
			t.Errorf("slice %d has %d nodes", i, len(s))
		}
		for _, m := range fewer.slices[i] {
			if !slices.ContainsFunc(s, func(o member) bool { return o.name == m.name }) {
				t.Errorf("%s changes its slice with the number of nodes", m.name)
			}
		}
	}
	if total != 3000 || n != 60 || slicesOf(3) != leastSlices || slicesOf(MaxNodes) != mostSlices {
		t.Errorf("%d nodes in %d slices", total, n)
	}
}
