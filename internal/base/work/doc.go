// Package work schedules the agent's own work. Starts, stops, commands of people, probes, removals, statistics and log rotation
// compete for one machine and one runtime, so each caller asks a Scheduler first.
//
// Contract: Enter queues work that can wait and calls back when it may begin. Begin notes work that begins at once. Done ends
// either. All three are cheap and never block. Each agent has one Scheduler.
//
// Invariants:
//
//   - While fewer jobs than the limit are in flight, nothing waits: an idle machine delays nothing.
//   - Under load the waiting classes share the machine by their Shares, measured in the time that their jobs take; within a class
//     the pods take turns. Each class with a share above 0 makes progress.
//   - Starts, stops and commands of people never wait here. They count as load, so that other jobs make room for them, but a part
//     of the limit is reserved for those other jobs. The Gate in package podworker bounds how many pods start at once: their number
//     is a Places, which follows what the machine bears by the same rule.
//   - The limit adapts to how long commands take: it grows while more jobs at once do not slow them down, and shrinks when more
//     jobs slow each of them down in proportion. It has a lower and an upper bound.
//   - A job that takes longer than hold stops counting as load: a command that sleeps, a stop that waits for its grace period, a
//     call to a runtime that hangs.
package work
