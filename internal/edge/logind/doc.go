// Package logind asks systemd-logind to delay the machine's shutdown, and receives a signal when a shutdown begins or is
// cancelled.
//
// Contract: a Bus is one connection. When it breaks, the channel of Shutdowns is closed, and a new Bus has to be opened. Only
// signals from the connection that has logind's name count, because every local process can send similar ones. Signals that the
// caller has not received yet are merged into one. Methods may be called concurrently. The context of a call bounds how long it
// waits for logind. While a file that Inhibit returned is open, logind delays a shutdown for at most MaxDelay.
//
// Source: https://www.freedesktop.org/wiki/Software/systemd/inhibit/, org.freedesktop.login1(5), logind.conf(5)
package logind
