package differ

import "slices"

// A case with a difference is run several times, and a difference is undecided only if each run shows it (Verdict.Again): upstream's kubelet
// lengthens its back-offs by a random part, looks at its containers once a second, and may see two things in either order, so it behaves a little
// differently each time. But a fault of Wherry may also show in some runs only. So its runs are compared in another way, too: what the kubelet did
// in all runs is the range in which Wherry may be, and each run of Wherry has to be like at least one of them.

// Alone returns the undecided differences that a run of Wherry shows compared with each run of upstream's kubelet, one for each class, and without
// consequences of others (Shown). They are the differences of the first such run, and began before its Crossing. compare is CompareAll for the
// case. With fewer than two runs there are none.
//
// The caller leaves out cases in which the agents restart, because each run restarts them at another moment.
func Alone(runs []*Pair, compare func(upstream, wherry *Trace) Verdict) []Difference {
	if len(runs) < 2 {
		return nil
	}
	for j, run := range runs {
		own := compare(run.Upstream, run.Wherry)
		left := slices.DeleteFunc(own.Undecided(), func(f Difference) bool { return !hasClass(own.Sure, f.Class) })
		for i, other := range runs {
			if i == j || len(left) == 0 {
				continue
			}
			found := compare(other.Upstream, run.Wherry)
			has := found.Undecided()
			left = slices.DeleteFunc(left, func(f Difference) bool { return !hasClass(has, f.Class) })
		}
		if len(left) > 0 {
			return Shown(left)
		}
	}
	return nil
}
