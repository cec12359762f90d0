package table

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Near is the largest difference between the medians of two runs that counts as agreement, as a share of the greater median. Comparing only
// the spreads is not enough: between two runs of two rounds each, the spreads of one cell in three do not overlap by chance.
const Near = 0.1

// Apart is a cell in which two runs disagree: their spreads, as printed, do not overlap, and their medians differ by more than Near.
type Apart struct{ Work, Column, One, Other string }

// Compare compares all cells that two tables have in common, including ratios. It returns the number of these cells, and those in which the
// tables disagree.
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

// keysOf returns a key for each line. Because some rows have the same title, the key also contains the heading above the line (the last
// line that is not indented), and a number if a title repeats below one heading.
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

// meet reports whether two spreads overlap with the precision in which they are printed, or the medians differ by at most Near.
func meet(x, y *Stat, format func(float64) string) bool {
	return x.Min <= y.Max && y.Min <= x.Max || format(x.Min) == format(y.Max) || format(y.Min) == format(x.Max) ||
		math.Abs(x.Value-y.Value) <= Near*max(x.Value, y.Value)
}
