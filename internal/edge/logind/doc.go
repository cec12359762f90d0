// Package logind asks systemd-logind to delay the machine's shutdown, and hears from it when one begins or is cancelled.
//
// Contract: a Bus is one connection; when it breaks, Shutdowns ends and a new Bus has to be opened. Methods may be called concurrently. Each call
// of the other side is bounded by its context. While a file that Inhibit returned is open, logind delays a shutdown, at most as
// long as MaxDelay says.
//
// Source: https://www.freedesktop.org/wiki/Software/systemd/inhibit/, org.freedesktop.login1(5), logind.conf(5)
package logind
