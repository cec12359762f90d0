package inorder

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct {
	rank int
	name string
}

func byRank(a, b item) int { return cmp.Compare(a.rank, b.rank) }

func TestEqualElementsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for n := range 200 {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		got := make([]item, n)
		for i := range got {
			got[i] = item{r.IntN(1 + n/3), string(rune('A' + i))}
		}
		want := slices.Clone(got)
		slices.SortStableFunc(want, byRank)
		Sort(got, byRank)
		if !slices.Equal(got, want) {
			t.Fatalf("%d elements: got %v, want %v", n, got, want)
		}
	}
}

func TestOneElementCostsNothing(t *testing.T) {
	one := []item{{1, "a"}}
	if n := testing.AllocsPerRun(100, func() { Sort(one, byRank) }); n != 0 {
		t.Errorf("the sorting of one element made %v allocations", n)
	}
}
