package differ

import (
	"errors"
	"fmt"
	"time"
)

// Spent is the processor time that the processes of a run have used. It depends much less on other load on the machine than a duration.
type Spent struct {
	API      time.Duration // kube-apiserver
	Etcd     time.Duration
	Plane    time.Duration // controllers and scheduler
	Upstream time.Duration // all processes of upstream's kubelet
	Wherry   time.Duration // all processes of Wherry
	Runner   time.Duration // the runner, in whose process the simulated runtimes are
	Runs     int64         // number of runs of cases
}

// Spent returns the processor time that was used until now.
func (run *Runner) Spent() (Spent, error) {
	c, err := run.rig.PlaneCPU()
	s := Spent{API: c.API, Etcd: c.Etcd, Plane: c.Plane, Runner: c.Bench, Runs: run.runs.Load()}
	errs := []error{err}
	for side := range sides(run.pairs) {
		d, err := side.agent.CPU()
		errs = append(errs, err)
		if side.upstream {
			s.Upstream += d
		} else {
			s.Wherry += d
		}
	}
	return s, errors.Join(errs...)
}

// Sub returns what was used between the measurement b and the measurement s.
func (s Spent) Sub(b Spent) Spent {
	return Spent{s.API - b.API, s.Etcd - b.Etcd, s.Plane - b.Plane, s.Upstream - b.Upstream, s.Wherry - b.Wherry, s.Runner - b.Runner, s.Runs - b.Runs}
}

// String returns the processor time of one run of a case.
func (s Spent) String() string {
	per := func(d time.Duration) float64 { return d.Seconds() / float64(max(1, s.Runs)) }
	return fmt.Sprintf("%.3f s (API server %.3f, etcd %.3f, controllers and scheduler %.3f, upstream's kubelets %.3f, Wherry's nodes %.3f, the runner with the simulated runtimes %.3f)",
		per(s.API+s.Etcd+s.Plane+s.Upstream+s.Wherry+s.Runner), per(s.API), per(s.Etcd), per(s.Plane), per(s.Upstream), per(s.Wherry), per(s.Runner))
}
