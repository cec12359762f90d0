// Package work says which of the node's own work goes next. Starts, stops, commands of people, probes, removals, statistics and
// log rotation compete for one machine and one runtime; whoever has such work asks here first.
//
// Contract: Enter takes work that can wait, and tells when it may begin; Begin notes work that does not wait. Done ends either.
// Both are cheap and never block. A Scheduler belongs to one agent.
//
// Invariants:
//
//   - Where fewer than the limit are in flight, nothing waits: an idle machine delays nothing.
//   - Under load the classes that wait share what the machine bears by their Shares, counted in the time that their work takes;
//     within a class pods take turns. A class with a share waits for at most what the others' shares are worth: nothing starves.
//   - Starts, stops and commands of people do not wait here. They count as load, so that what can wait makes room for them;
//     a part of the limit stays for the others all the same. How many pods start at once is the Gate's in package podworker.
//   - The limit follows what commands take: it grows while more at once makes none of them slower, and shrinks while it makes
//     each as much slower. It has bounds on both sides.
//   - What takes longer than hold counts as load no more: a command that sleeps, a stop that waits for its grace period. A
//     runtime that hangs keeps a place for no longer either.
package work
