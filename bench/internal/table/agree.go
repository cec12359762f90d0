package table

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Near is the difference of two medians, as a share of the greater one, that two runs of the same work may have.
// Spreads alone cannot decide: of two runs of two rounds each, one cell in three has spreads that miss each other by chance.
const Near = 0.1

// Apart is a cell in which two runs disagree: their spreads, as printed, do not overlap, and their medians are not near each other.
type Apart struct{ Work, Column, One, Other string }

// Compare compares all cells that two runs have in common, including ratios.
func Compare(one, other []Line) (cells int, apart []Apart) {
	others, keys := map[string]*Line{}, keysOf(one)
	for i, k := range keysOf(other) {
		others[k] = &other[i]
	}
	for i := range one {
		a := &one[i]
		b := others[keys[i]]
		if b == nil {
			continue
		}
		compare := func(column string, x, y *Stat, format func(float64) string) {
			cells++
			if !meet(x, y, format) {
				apart = append(apart, Apart{a.Work, column, x.print(format), y.print(format)})
			}
		}
		for _, arm := range slices.Sorted(maps.Keys(a.Arms)) {
			x := a.Arms[arm]
			if y, ok := b.Arms[arm]; ok {
				compare(arm, &x, &y, a.Unit.format)
			}
		}
		if a.Ratio != nil && b.Ratio != nil {
			compare("ratio", a.Ratio, b.Ratio, hundredths)
		}
	}
	return cells, apart
}

// keysOf returns a key of each line: the line's title and the heading above it, because some rows have the same title. A heading is a
// line that is not indented. Lines with the same title below the same heading are counted.
func keysOf(lines []Line) []string {
	keys, count, heading := make([]string, len(lines)), map[string]int{}, ""
	for i, l := range lines {
		if !strings.HasPrefix(l.Work, " ") {
			heading = l.Work
		}
		k := heading + "\n" + l.Work
		keys[i] = fmt.Sprintf("%s\n%d", k, count[k])
		count[k]++
	}
	return keys
}

// meet reports whether two spreads overlap, in the precision that is printed, or the medians are near each other.
func meet(x, y *Stat, format func(float64) string) bool {
	return x.Min <= y.Max && y.Min <= x.Max || format(x.Min) == format(y.Max) || format(y.Min) == format(x.Max) ||
		math.Abs(x.Value-y.Value) <= Near*max(x.Value, y.Value)
}
