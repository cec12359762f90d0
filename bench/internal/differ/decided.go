package differ

import "slices"

// Decision is a class of intended differences between upstream's kubelet and Wherry. Every other difference is a fault of Wherry or of the
// comparison.
type Decision struct {
	Class string
	// Why says why Wherry's behaviour is right. It quotes the Kubernetes documentation or an upstream issue if there is one.
	Why string
	// Notice says what a user notices of the difference.
	Notice string
	// Where names the machines on which the difference appears; "": on all.
	Where string
	// Rare: none of the counted runs shows the difference; an earlier run showed it, or a case that was made for it. If a counted run shows it, a test
	// fails until the mark is removed.
	Rare bool
}

// where returns the machines on which the difference appears, in parentheses, as a table shows them after the class.
func (d Decision) where() string {
	if d.Where == "" {
		return ""
	}
	return " (" + d.Where + ")"
}

// Decided reports whether Decisions or ConfigDecisions contains the class.
func Decided(class string) bool {
	has := func(d Decision) bool { return d.Class == class }
	return slices.ContainsFunc(Decisions, has) || slices.ContainsFunc(ConfigDecisions, has)
}

// Shown returns the undecided (unintended) differences that a report shows, without consequences of others: all of level InConfig, and
// those of the lowest other level that has any.
func Shown(found []Difference) (shown []Difference) {
	lowest := InMessages
	for _, d := range found {
		if d.Level > InConfig && !Decided(d.Class) {
			lowest = min(lowest, d.Level)
		}
	}
	for _, d := range found {
		if !Decided(d.Class) && (d.Level == InConfig || d.Level == lowest) {
			shown = append(shown, d)
		}
	}
	return shown
}
