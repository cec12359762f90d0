package differ

import (
	"fmt"
	"strings"
)

// Document returns the table of decisions as a page.
func Document() string {
	var b strings.Builder
	b.WriteString(`# What Wherry does differently from upstream's kubelet

<!-- Generated from bench/internal/differ/decisions.go by: cd bench && go test ./internal/differ -run TestDocument -update -->

` + "`make differential`" + ` runs the same generated pods on upstream's kubelet and on Wherry, each over a simulated runtime of its own, and
compares the requests to the runtime (with their whole configuration), the statuses that the API server saw, and the events. A
difference counts when the case shows it twice. A difference that is in no table of this page fails the run, and so does an entry
that no case of a run of 2,500 or more needs.

A case in which upstream's kubelet tells the API of a container more than six seconds late tells of the machine and is left out;
more than two of a hundred fail the run. Probes are commands, HTTP and gRPC requests, and connections; the simulated pods answer on
loopback addresses of their own. Not generated: devices, and volumes that need a driver.

How sharp the comparison is can be tried: ` + "`-record FILE`" + ` keeps what both agents did, and ` + "`-replay FILE -plant grace`" + ` (or restart, or
reason) compares it again with a fault in all that Wherry did, and says how many cases show it, and how many of those in which the fault
comes before two things whose order may differ.

## What is not compared

Upstream's kubelet looks at its containers once a second, and starts them and writes statuses one after another. So some lines that
differ are no difference. A run prints how many cases and lines each of these rules took, and fails when a rule takes more than its
bound. A comparison that excuses too much could not fail.

`)
	b.WriteString("| Rule | Why | Bound, of 100 cases |\n|---|---|---|\n")
	for _, e := range Excuses {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(e.Name), cell(e.Why), e.Bound())
	}
	fmt.Fprintf(&b, "\nOf a hundred cases at most %g may have two things whose order an agent may see either way. Such a case is compared up to five\n"+
		"seconds before the first of the two.\n\n## Decided differences\n\n", MostCrossed)
	if len(Decisions) == 0 {
		b.WriteString("No difference is decided yet.\n")
	} else {
		b.WriteString("| Difference | Why | What a user notices |\n|---|---|---|\n")
	}
	b.WriteString(rows(Decisions))
	b.WriteString(aboutConfigs)
	b.WriteString(rows(ConfigDecisions))
	b.WriteString(aboutSuite)
	b.WriteString(undecided)
	return b.String()
}

func cell(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }

// aboutSuite is the text about what the generated pods do not cover.
const aboutSuite = `
## What upstream's own node suite shows

| Difference | Why | What a user notices |
|---|---|---|
| a pod that the node preempts, evicts or ends for its shutdown, and whose containers then exit with 0: upstream Succeeded without a reason, Wherry Failed with the reason | "PodFailed means that all containers in the pod have terminated, and at least one container has terminated in a failure (exited with a non-zero exit code or was stopped by the system)." Upstream's kubelet says Failed too while it ends the pod, and derives the phase from the exit codes alone when the containers have ended; its maintainers kept that (kubernetes#118310), and an open issue asks how to tell such a pod from one that is done (kubernetes#141483). The test "should add DisruptionTarget condition to the preempted pod" of the suite wants Succeeded. | A Job does not count work as done that the node broke off, and the status says for what. |
`

// undecided is the text about what is not decided yet.
const undecided = `
## Not decided yet

Six runs of seeds that had never been used were recorded: 41000, 43000, 45000, 47000, 49000 and 51000, with 1,425, 1,169, 1,125, 1,030, 920 and 1,080
cases, all but the first with probes over the network and restarts of both agents. The last four had 12, 10, 6 and 4 cases with an undecided difference,
in nine, six, five and five classes. With the rules of this page none of the six has one that is not mended; the rules were made after looking at them,
so that the next seed may have some again. Planted into the run of seed 51000, the fault "grace" shows in 374 of 876 cases, "restart" in 48 of 167 and
"reason" in 281 of 1,068: a case whose order of things may differ excuses all that it shows. ` + "`make differential`" + ` prints all there is, each with a case that shows it, and fails as long as there are any.
`
