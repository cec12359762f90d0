// Package work schedules the agent's own work. Starts, stops, commands of users, probes, removals, statistics and log rotation compete for
// one machine and one runtime, so each caller asks a Scheduler first.
//
// Contract: Enter queues a job that can wait and calls back when the job may begin. Begin records a job that begins at once. Done ends a
// job. All three are cheap and never block. Each agent has one Scheduler.
//
// Invariants:
//
//   - While fewer jobs than the limit are in flight, and none of them is a start, a stop or a command of a user, no job waits. So an
//     idle machine delays nothing.
//   - Under load the waiting classes share the machine by their Shares, measured in the time that their jobs take; within a class
//     the pods take turns. Each class with a share above 0 makes progress.
//   - Starts, stops and commands of users never wait here. While one of them is in flight, a quarter of the limit is left for the
//     other jobs. The Gate in package podworker bounds how many pods start at once. The Gate has a Slots, which adapts this bound
//     by the same rule as the limit.
//   - While a job of Start or People is in flight, a removal waits for ten seconds. After that, as many removals
//     run at once as there are processors.
//   - Stops of sandboxes wait for a slot of a Turns, which is a Semaphore with a number of slots that a Slots adapts. So while the
//     networks of many deleted pods are removed, a pod that starts shares the machine with a few of the stops, not with all.
//   - Image pulls have a Semaphore, because the administrator sets their number.
//   - The limit adapts to how long commands take: it grows while more jobs at once do not slow them down, and shrinks when more
//     jobs slow each of them down in proportion. It has a lower and an upper bound.
//   - A job that takes long (see hold) stops counting as load, for example a command that sleeps, a stop that waits for a grace period, or
//     a call to a runtime that hangs.
package work
