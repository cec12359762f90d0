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
difference is reported only if two runs of its case show it. The run fails if a difference is in none of the tables below. A run of 2,500 or
more cases also names each difference in a table that none of its cases shows; a test fails if none of the counted runs shows it.

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
		return uncounted
	}
	var b strings.Builder
	b.WriteString("\n## The runs\n\nThe counts on this page are the sums of these runs, each a whole run of `make differential` (bench/results/differential.json):\n\n" +
		"| Seed | Cases | Not compared, because the machine was too slow | Compared only up to a point |\n|---|---|---|---|\n")
	for _, r := range c.Runs {
		fmt.Fprintf(&b, "| %d | %s | %d | %s |\n", r.Seed, grouped(r.Cases), r.Slow, grouped(r.Crossed))
	}
	return b.String()
}

// grouped returns the number with a comma between thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// uncounted is the section of docs/differences.md about the runs while there are no counts of a complete run.
const uncounted = `
## Not decided yet

Six runs of seeds that had never been used were recorded: 41000, 43000, 45000, 47000, 49000 and 51000, with 1,425, 1,169, 1,125, 1,030, 920 and 1,080
cases, all but the first with probes over the network and restarts of both agents. The last four had 12, 10, 6 and 4 cases with an undecided difference,
in nine, six, five and five classes. The rules were made after looking at them, so that the next seed may have some again.

A case in which the order of two things may differ is compared up to that point. Two more runs were recorded for that, of seeds 61000 and
63000, with 308 and 450 cases, on a machine that did other work beside them. With the rules of this page one of these cases has an undecided difference; these
rules, too, were made after looking at them. The order of two things may differ in 135 of the 758 cases. Planted into these runs, the fault "grace" shows in
372 of 604 cases, "restart" in 48 of 110 and "reason" in 356 of 751.
Of the cases in which such a fault comes before two things whose order may differ, 7 of 17, 1 of 3 and 45 of 82 show it; the others are hidden by the rules
above, for example because the value passes within two seconds.

The first whole run was of seed 81000: 7,730 cases of all kinds, on two cores. In 104 of them upstream's kubelet was too slow. When
the run ended, 49 cases had an undecided difference, in 59 classes. With the rules of this page, which were made after looking at them, six have one, in
nine classes: seed 81312 shows a fault of Wherry and seed 81979 one of the runner, which are mended; in 81119, 81141, 81177 and 81418 the machine was slow.
Planted into the first 3,134 of these cases, the fault "grace" shows in 1,480 of 2,469 cases, "restart" in 214 of 499 and "reason" in 1,483 of 2,790;
where it comes before two things whose order may differ, in 25 of 51, 4 of 9 and 144 of 273.

The second whole run was of seed 101000: 7,750 cases of all kinds, on two cores. In 55 of them upstream's kubelet was too slow. When the run ended,
12 cases had an undecided difference, in 11 classes; with the rules of this page, which were made after looking at them, none has one. Seeds 101051 and
101499 also show a fault of Wherry, which is mended. No case shows 17 of the decided differences. Planted into this run,
the fault "grace" shows in 4,178 of 6,297 cases, "restart" in 426 of 1,115 and "reason" in 3,231 of 6,475; where it comes before two things whose order
may differ, in 61 of 149, 8 of 25 and 353 of 659.

The third whole run was of seed 102000: 7,750 cases of all kinds. In 32 of them upstream's kubelet was too slow. When the run ended, 16 cases had an undecided
difference, in 17 classes. With the rules of this page, which were made after looking at them, one has one, in two classes: seed 102095 shows a fault of
Wherry, which is mended. No case shows 14 of the decided differences.
` + "`make differential`" + ` prints all there is, each with a case that shows it, and fails as long as there are any.
`
