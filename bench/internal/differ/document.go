package differ

import (
	"fmt"
	"strconv"
	"strings"
)

// Document returns the text of docs/differences.md: tables of the intended differences and of the excuses, each with how often the runs
// in counts showed it.
func Document(counts Counts) string {
	var b strings.Builder
	b.WriteString(`# What Wherry does differently from upstream's kubelet

<!-- Generated from bench/internal/differ/decisions.go by: cd bench && go test ./internal/differ -run TestDocument -update -->

` + "`make differential`" + ` runs the same generated pods on upstream's kubelet and on Wherry, each over a simulated runtime of its own, and
compares the requests to the runtime (with their whole configuration), the statuses that the API server saw, and the events. A
difference is reported only if each of seven runs of its case shows it (the run makes the last four if the first three show it). The run fails if a difference is in none of the tables below. A run of 2,500 or
more cases also names each difference in a table that none of its cases shows; a test fails if none of the counted runs shows it, unless it is one of the few that are
marked as rare (0 cases), which only an earlier run or a case made for it showed.

The runs of such a case are compared in another way, too: what upstream's kubelet did in any of them is right, and each run of Wherry has to be like one of
them. A difference that a run of Wherry shows with each run of the kubelet is named as one that is not in each run, also if another run of Wherry does not show it:
it may be a fault that does not always show. The run fails if more than 0.2 of a hundred cases have one; they may come from a slow machine.

If upstream's kubelet reports a container to the API more than six seconds late, the machine is too slow, and the case is left out; the run
fails if that happens in more than two of a hundred cases. Probes are commands, HTTP and gRPC requests, and TCP connections; each simulated pod
answers on a loopback address of its own. The cases have no devices, and no volumes that need a driver.

To try how sensitive the comparison is: ` + "`-record FILE`" + ` keeps what both agents did, and ` + "`-replay FILE -plant grace`" + ` (or restart, or
reason) compares it again with a fault in all that Wherry did, and says how many cases show it, and how many of those in which the fault
comes before two things whose order may differ.

## What is not compared

Upstream's kubelet looks at its containers once a second, and starts containers and writes statuses one after another. So some lines may differ
although both agents behave alike. These rules excuse such lines. A run prints how many cases and lines each rule excused, and fails if that is
more than the rule's bound, because a comparison that excuses too much could not fail.

`)
	// Without the counts of a run, the columns with counts would contain only zeros, so they are left out.
	column := func(text string) string {
		if len(counts.Runs) == 0 {
			return ""
		}
		return " " + text + " |"
	}
	fmt.Fprintf(&b, "| Rule | Why | Bound, of 100 cases |%s\n|---|---|---|%s\n", column("Seen, of 100 cases"), column("---"))
	for _, e := range Excuses {
		fmt.Fprintf(&b, "| %s | %s | %s |%s\n", cell(e.Name), cell(e.Why), e.Bound(), column(e.seen(counts)))
	}
	fmt.Fprintf(&b, "\nIn at most %g of a hundred cases, two things may happen so close together that an agent may see them in either order. Such a case is compared up to five\n"+
		"seconds before the first of the two.\n\n## Decided differences\n\n", MostCrossed)
	if len(Decisions) == 0 {
		b.WriteString("No difference is decided yet.\n")
	} else {
		fmt.Fprintf(&b, "| Difference | Why | What a user notices |%s\n|---|---|---|%s\n", column("Cases"), column("---"))
	}
	for _, d := range Decisions {
		fmt.Fprintf(&b, "| %s%s | %s | %s |%s\n", cell(d.Class), d.where(), cell(d.Why), cell(d.Notice), column(grouped(counts.Decided(d.Class))))
	}
	b.WriteString(aboutConfigs)
	b.WriteString(rows(ConfigDecisions))
	b.WriteString(aboutSuite)
	b.WriteString(counts.runs())
	return b.String()
}

func cell(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }

// aboutSuite is the section of docs/differences.md about differences that appear only in upstream's own node tests.
const aboutSuite = `
## What upstream's own node suite shows

| Difference | Why | What a user notices |
|---|---|---|
| a pod that the node preempts, evicts or ends for its shutdown, and whose containers then exit with 0: upstream Succeeded without a reason, Wherry Failed with the reason | "PodFailed means that all containers in the pod have terminated, and at least one container has terminated in a failure (exited with a non-zero exit code or was stopped by the system)." Upstream's kubelet says Failed too while it ends the pod, and derives the phase from the exit codes alone when the containers have ended; its maintainers kept that (kubernetes#118310), and an open issue asks how to tell such a pod from one that is done (kubernetes#141483). The test "should add DisruptionTarget condition to the preempted pod" of the suite wants Succeeded. | A Job does not count work as done that the node broke off, and the status says for what. |
`

// seen returns how often runs needed the excuse, as text: the share of cases, or the number of excused differences (lines) per 100 cases.
func (e Excuse) seen(counts Counts) string {
	cases, lines := counts.Excused(e.Name)
	per := func(n int) float64 { return 100 * float64(n) / float64(max(1, counts.Cases())) }
	if e.Lines > 0 {
		return fmt.Sprintf("%.0f lines", per(lines))
	}
	return fmt.Sprintf("%.1f cases", per(cases))
}

// runs returns the section of docs/differences.md about the runs from which its counts come.
func (c Counts) runs() string {
	if len(c.Runs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n## The runs\n\nThe counts on this page are the sums of these runs, each a whole run of `make differential` (bench/results/differential.json):\n\n" +
		"| Seed | Cases | Not compared, because the machine was too slow | Compared only up to a point |\n|---|---|---|---|\n")
	for _, r := range c.Runs {
		fmt.Fprintf(&b, "| %d | %s | %d | %s |\n", r.Seed, grouped(r.Cases), r.Slow, grouped(r.Crossed))
	}
	b.WriteString(aboutRuns)
	return b.String()
}

// grouped returns the number with a comma between thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// aboutRuns says with which undecided differences the counted runs ended.
const aboutRuns = `
When these runs ended, the first had an undecided difference in 12 of its cases, in 11 classes, the second in 16 (17 classes), and the third, which runs such a case
three times instead of twice, in two (two classes). With the rules of this page, which were made after looking at them, only seed 102095 still has one: it shows a
fault of Wherry, which is mended, as are two that the first run showed (seeds 101051 and 101499). So the next seed may show one or two rare classes more;
` + "`make differential`" + ` prints each with a case that shows it, and fails as long as there are any. In the third run other work on the machine made upstream's
kubelet late in more cases.

The run of seed 107000 ended with five undecided classes in four of its cases: two values that upstream's kubelet reported too late to be compared, because it
had lengthened a back-off, two rules of this page that did not reach far enough, and one decision that was missing.

Compared with each other, the runs of six cases of seed 107000 show something that Wherry did in one run and upstream's kubelet in neither of its two. One was a fault
of Wherry, which is mended (seed 107777): a container that ended with 0 was restarted because its probe over the network found nobody in the milliseconds before
the agent heard of the end. In two cases (109250, 110191) a container exits at the moment when its startup probe has failed for good, in one (static 107337) the mirror that comes back after
two seconds came too late to show that the container ran, in one (110602) two stops are half a second apart, and one (static 107376) is not explained yet.
The run of seed 108000 ended with five undecided classes in six of its cases. Two decisions of this page did not reach far enough: a container that has
completed is restarted by upstream's kubelet for a liveness or startup probe that failed too late, and of a static pod only one container runs again when the manifest comes back. Three classes hung on a moment: a
probe whose failure ends when it is asked first, and an instance that upstream's kubelet stops in its first second. A sixth difference, which was not there in a further run (seed 108286), was a fault of Wherry,
which is mended: a sidecar that failed its startup probe was not stopped before an earlier sidecar had ended.
In four cases Wherry did something in one run that upstream's kubelet did in none: in three (110821, 111884, 111986) two events come at the same moment, and in one
(static 108422) the directories and containers of the pod's former life were removed seven seconds later than in the other runs, while other work kept the machine's disk busy.

The run of seed 109000 ended with three undecided classes in three of its cases: a sandbox that is lost while upstream's kubelet waits before it makes it again (static 109485), failures of a probe that both
agents count anew after a restart (restart 109172), and a readiness gate that upstream's kubelet finds missing while it still shows an ended container as running (112179). A run uses the numbers from its seed on,
so these three runs have most of their cases in common: of the 5,000 pods of seed 109000, 4,000 had run with seed 108000. One rule that was made after seed 108000 was too narrow for a case of seed 107000
(restart 107177: a restart of the agents interrupts the preStop hook of a container that failed its startup probe), and reaches further now.

The run of seed 120000, which has no case in common with the others, ended with five undecided classes in six of its cases. Three decisions of this page did not reach far enough (121814, 121065, and 122618, where a
change of the image comes before the container's exit on one side only, after a slow first probe of a sidecar), and one was missing (120193). None was a fault of Wherry. Other work kept both processors busy, so that
upstream's kubelet was late in 56 cases, and in 11 cases Wherry did something in one run that upstream's kubelet did in none: the mirrors of static pods were written a second or more later than in the other five runs
of such a case (120112, 120164, 120175, 120245, 120251, 120253, 120274, 120301), an image had not been pulled before on Wherry's node (120241), and a liveness probe fails three times or twice (120712).

Why a whole run finds a few new classes: of the five of seed 107000 two, which have one cause, hang on chance, and more runs of such a case may end them; the other three do
not, so that no rule about repeated runs may excuse them. Each needs a decision.

A smaller run with these rules, of seed 104000 with 1,240 cases, ended by itself without an undecided difference. A run before these, of seed 81000, whose counts were not kept, ended with 49 such cases of 7,730.

Faults planted into the run of seed 101000: "grace" shows in 4,178 of 6,297 cases, "restart" in 426 of 1,115 and "reason" in 3,231 of 6,475. Of the cases in which
such a fault comes before two things whose order may differ, 61 of 149, 8 of 25 and 353 of 659 show it; the others are hidden by the rules above, for
example because the value passes within two seconds.
`
