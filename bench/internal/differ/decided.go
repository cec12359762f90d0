package differ

import "slices"

// Decision is a class of intended differences. Every other difference is a fault of Wherry or of the comparison.
type Decision struct {
	Class string
	// Why is the reason why Wherry's way is right. It quotes the documentation or an issue of upstream's if there is one.
	Why string
	// Notice is what a user notices.
	Notice string
	// Where names the machines on which the difference appears, if not on all.
	Where string
}

// Decided reports whether the table contains a class.
func Decided(class string) bool {
	has := func(d Decision) bool { return d.Class == class }
	return slices.ContainsFunc(Decisions, has) || slices.ContainsFunc(ConfigDecisions, has)
}

// Shown returns the undecided differences of a case without the consequences of others: those of the lowest level that has any,
// and those of configurations.
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
